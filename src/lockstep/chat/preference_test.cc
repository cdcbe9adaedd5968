// Every form of a preference, and everything in one that is refused.
#include "lockstep/chat/preference.h"

#include <gtest/gtest.h>

#include "lockstep/chat/fault.h"

namespace lockstep::chat {
namespace {

// "prompt|chosen|rejected" of texts; messages as "role:content" with / between them, the prompt's marked with
// *.
std::string shown(const Conversation& conversation) {
  std::string text;
  for (const Json& turn : conversation.messages) {
    text += (text.empty() ? "" : "/") + turn["role"].get<std::string>().substr(0, 1) + ":" +
            text_of_content(turn["content"], 0) + (turn.contains("weight") ? "*" : "");
  }
  return text;
}

std::string read(const std::string& text) {
  try {
    const Preference read = read_preference(Json::parse(text));
    if (const auto* texts = std::get_if<TextPreference>(&read))
      return texts->prompt + "|" + texts->chosen + "|" + texts->rejected;
    const auto& chats = std::get<ChatPreference>(read);
    return shown(chats.chosen) + "|" + shown(chats.rejected);
  } catch (const Fault& fault) {
    return std::to_string(fault.number);
  }
}

const std::string kUser = R"({"role":"user","content":"Hi"})";
std::string said(const char* text) {
  return std::string(R"({"role":"assistant","content":")") + text + "\"}";
}

TEST(Preference, IsReadFromEveryForm) {
  struct Row {
    std::string given, read;
  };
  for (const Row& row : std::initializer_list<Row>{
           {R"({"prompt": "2 + 2 =", "chosen": " 4", "rejected": " 5"})", "2 + 2 =| 4| 5"},
           {R"({"chosen": "2 + 2 = 4", "rejected": "2 + 2 = 5"})", "2 + 2 =| 4| 5"},
           {R"({"prompt": null, "chosen": "ab", "rejected": "ac"})", "a|b|c"},
           {R"({"chosen": "x\u00e4", "rejected": "x\u00f6"})", "x|\u00e4|\u00f6"},  // no half a character
           {R"({"prompt": [)" + kUser + R"(], "chosen": [)" + said("A") + R"(], "rejected": [)" + said("B") +
                "]}",
            "u:Hi/a:A|u:Hi/a:B"},
           {R"({"chosen": [)" + kUser + "," + said("A") + R"(], "rejected": [)" + kUser + "," + said("B") +
                "]}",
            "u:Hi/a:A|u:Hi/a:B"},
           {R"({"prompt": "Hi", "chosen": [)" + kUser + "," + said("A") + R"(], "rejected": [)" + kUser +
                "," + said("B") + "]}",
            "u:Hi/a:A|u:Hi/a:B"},
           {R"({"prompt": "Hi", "chosen": [)" + said("A") + R"(], "rejected": [)" + said("B") + "]}",
            "u:Hi/a:A|u:Hi/a:B"},
           {R"({"prompt": [)" + kUser + R"(], "chosen": "A", "rejected": "B"})", "u:Hi/a:A|u:Hi/a:B"},
           {R"({"conversations": [{"from":"human","value":"Hi"}], "chosen": {"from":"gpt","value":"A"}, )"
            R"("rejected": {"from":"gpt","value":"B"}})",
            "u:Hi/a:A|u:Hi/a:B"},
           {R"({"system": "Be kind", "prompt": [)" + kUser + R"(], "chosen": [)" + said("A") +
                R"(], "rejected": [)" + said("B") + "]}",
            "s:Be kind/u:Hi/a:A|s:Be kind/u:Hi/a:B"},
           // Earlier answers belong to the prompt, and are not trained on.
           {R"({"chosen": [)" + kUser + "," + said("Yes") + "," + kUser + "," + said("A") +
                R"(], "rejected": [)" + kUser + "," + said("Yes") + "," + kUser + "," + said("B") + "]}",
            "u:Hi/a:Yes*/u:Hi/a:A|u:Hi/a:Yes*/u:Hi/a:B"},
       }) {
    EXPECT_EQ(read(row.given), row.read) << row.given;
  }
}

TEST(Preference, NamesWhatIsNone) {
  struct Row {
    std::string given;
    int number;
  };
  for (const Row& row : std::initializer_list<Row>{
           {R"([1])", 390},
           {R"({"prompt": "a", "chosen": "b"})", 390},
           {R"({"prompt": "a", "chosen": "b", "rejected": null})", 390},
           {R"({"prompt": "a", "chosen": "b", "rejected": "b"})", 392},
           {R"({"chosen": "b", "rejected": "c"})", 391},  // nothing shared
           {R"({"prompt": "a", "chosen": "", "rejected": "c"})", 391},
           {R"({"chosen": "ab", "rejected": "a"})", 391},  // nothing left of one
           {R"({"prompt": "a", "chosen": 7, "rejected": "c"})", 391},
           {R"({"prompt": 7, "chosen": "b", "rejected": "c"})", 261},
           {R"({"chosen": [)" + said("A") + R"(], "rejected": [)" + said("B") + "]}", 391},
           {R"({"prompt": "else", "chosen": [)" + kUser + "," + said("A") + R"(], "rejected": [)" + kUser +
                "," + said("B") + "]}",
            391},
           {R"({"prompt": [)" + kUser + R"(], "chosen": [], "rejected": [)" + said("B") + "]}", 261},
       }) {
    EXPECT_EQ(read(row.given), std::to_string(row.number)) << row.given;
  }
}

}  // namespace
}  // namespace lockstep::chat
