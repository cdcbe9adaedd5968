// Every form of a conversation, and everything in one that is refused.
#include "lockstep/chat/conversation.h"

#include <gtest/gtest.h>

#include "lockstep/chat/fault.h"

namespace lockstep::chat {
namespace {

Conversation read(const std::string& text) {
  const Json row = Json::parse(text);
  const Form* form = form_of(row);
  if (form == nullptr) throw Fault{260, "no form"};
  return form->read(row);
}

std::string fault_of(const std::string& text) {
  try {
    return "read: " + read(text).messages.dump();
  } catch (const Fault& fault) {
    return std::to_string(fault.number) + " " + fault.sentence;
  }
}

TEST(Conversation, IsReadFromEveryForm) {
  const std::string hello = R"([{"role":"user","content":"Hi"},{"role":"assistant","content":"Hello"}])";
  struct Row {
    const char* given;
    std::string messages;
  };
  for (
      const Row& row : std::initializer_list<Row>{
          {R"({"messages": [{"role":"user","content":"Hi"},{"role":"assistant","content":"Hello"}]})", hello},
          {R"({"id": 7, "conversations": [{"from":"human","value":"Hi"},{"from":"gpt","value":"Hello"}]})",
           hello},
          {R"({"conversations": [{"role":"user","content":"Hi"},{"role":"assistant","content":"Hello"}]})",
           hello},
          {R"({"conversation": [{"role":"user","content":"Hi"},{"role":"assistant","content":"Hello"}]})",
           hello},
          {R"({"instruction": "Hi", "input": "", "output": "Hello"})", hello},
          {R"({"instruction": "Hi", "output": "Hello", "input": null})", hello},
          {R"({"prompt": "Hi", "completion": "Hello"})", hello},
          {R"({"prompt": [{"role":"user","content":"Hi"}], "completion": [{"role":"assistant","content":"Hello"}]})",
           hello},
          {R"({"system": "Be kind", "conversations": [{"from":"human","value":"Hi"}]})",
           R"([{"role":"system","content":"Be kind"},{"role":"user","content":"Hi"}])"},
          {R"({"instruction": "Add", "input": "1, 2", "output": "3", "history": [["a","b"]], "system": "S"})",
           R"([{"role":"system","content":"S"},{"role":"user","content":"a"},{"role":"assistant","content":"b"},)"
           R"({"role":"user","content":"Add\n\n1, 2"},{"role":"assistant","content":"3"}])"},
          {R"({"conversations": [{"from":"function_call","value":"{\"name\": \"f\", \"arguments\": {\"x\": 1}}"},)"
           R"({"from":"observation","value":"2"}]})",
           R"([{"role":"assistant","content":"","tool_calls":[{"type":"function","function":)"
           R"({"name":"f","arguments":{"x":1}}}]},{"role":"tool","content":"2"}])"},
      }) {
    EXPECT_EQ(read(row.given).messages, Json::parse(row.messages)) << row.given;
  }
}

TEST(Conversation, KeepsToolsAndNames) {
  const Conversation made =
      read(R"({"messages": [{"role":"user","content":"Hi"}], "tools": "[{\"name\": \"f\"}]",)"
           R"( "chat_template_kwargs": {"enable_thinking": false}})");
  EXPECT_EQ(made.tools, Json::parse(R"([{"name": "f"}])"));
  EXPECT_EQ(made.names, Json::parse(R"({"enable_thinking": false})"));
  EXPECT_TRUE(read(R"({"messages": [{"role":"user","content":"Hi"}], "tools": []})").tools.is_null());
}

TEST(Conversation, SaysWhatIsWrong) {
  struct Row {
    const char* given;
    const char* says;
  };
  for (const Row& row : std::initializer_list<Row>{
           {R"({"text": "Hi"})", "260"},
           {R"([1])", "260"},
           {R"({"messages": "Hi"})", "261 has a field \"messages\" that is not a list"},
           {R"({"messages": []})", "without messages"},
           {R"({"messages": [5]})", "message 1 that is not an object"},
           {R"({"messages": [{"content": "Hi"}]})", "message 1 without a role"},
           {R"({"messages": [{"role": "user"}]})", "message 1 without content"},
           {R"({"messages": [{"role": "user", "content": 5}]})", "neither text nor a list"},
           {R"({"messages": [{"role": "user", "content": [{"type": "image", "url": "x"}]}]})",
            "part of type \"image\""},
           {R"({"conversations": [{"from": "narrator", "value": "x"}]})", "from \"narrator\""},
           {R"({"conversations": [{"from": "human"}]})", "message 1 without a value"},
           {R"({"instruction": 5, "output": "x"})", "\"instruction\" that is not a string"},
           {R"({"prompt": "x", "completion": {}})", "\"completion\" that is not a string"},
           {R"({"messages": [{"role":"user","content":"Hi"}], "tools": 5})", "\"tools\" that are not a list"},
           {R"({"instruction": "a", "output": "x", "history": [1]})", "list of pairs"},
       }) {
    EXPECT_NE(fault_of(row.given).find(row.says), std::string::npos) << row.given << "\n"
                                                                     << fault_of(row.given);
  }
}

}  // namespace
}  // namespace lockstep::chat
