// What is trained on, with templates of many models (tools/samples/chat_templates.json);
// tools/real/chat_test.sh compares the same templates with transformers.
#include "lockstep/chat/trained.h"

#include <gtest/gtest.h>

#include <fstream>
#include <random>

#include "lockstep/base/temporary_folder.h"
#include "lockstep/chat/encode.h"
#include "lockstep/chat/fault.h"
#include "lockstep/text/bpe_trainer.h"

namespace lockstep::chat {
namespace {

struct Model {
  ChatTemplate spoken;
  std::vector<text::SpecialToken> special;
};

Model model_named(const std::string& name) {
  std::ifstream file(std::string(LOCKSTEP_SOURCE) + "/tools/samples/chat_templates.json");
  for (const Json& row : Json::parse(file)) {
    if (row["name"] != name) continue;
    std::vector<std::pair<std::string, jinja::Value>> names;
    for (const auto& [key, value] : row["tokens"].items()) names.emplace_back(key, value.get<std::string>());
    Model made{ChatTemplate(row["template"], names), {}};
    for (const Json& token : row["special"])
      made.special.push_back({token, static_cast<int32_t>(made.special.size())});
    return made;
  }
  throw std::runtime_error("no template " + name);
}

Model own_model(const std::string& source) {
  return {ChatTemplate(source, {{"eos_token", "</s>"}}), {{"</s>", 0}}};
}

Conversation conversation_of(const std::string& messages) {
  Conversation made;
  made.messages = Json::parse(messages);
  return made;
}

// The text with brackets around what is trained on.
std::string marked(const Model& model, const Conversation& conversation,
                   TrainOn train_on = TrainOn::assistant) {
  try {
    const Rendered rendered = render(model.spoken, conversation, train_on, model.special);
    std::string text = rendered.text;
    for (size_t i = rendered.trained.size(); i-- > 0;) {
      text.insert(rendered.trained[i].end, "⟧");
      text.insert(rendered.trained[i].begin, "⟦");
    }
    return text;
  } catch (const Fault& fault) {
    return "LS0" + std::to_string(fault.number) + " " + fault.sentence;
  }
}

const char* const kTwice = R"([{"role":"user","content":"Hi"},{"role":"assistant","content":"Yes"},)"
                           R"({"role":"user","content":"Yes"},{"role":"assistant","content":"Yes"}])";
const char* const kThought =
    R"([{"role":"user","content":"a"},{"role":"assistant","content":"<think>\nhm\n</think>\n\nyes"},)"
    R"({"role":"user","content":"b"},{"role":"assistant","content":"<think>\nso\n</think>\n\nno"}])";
const char* const kSystem =
    R"([{"role":"system","content":"S"},{"role":"user","content":"a"},{"role":"assistant","content":"b"},)"
    R"({"role":"user","content":"c"},{"role":"assistant","content":"d"}])";
const char* const kTools =
    R"([{"role":"user","content":"a"},{"role":"assistant","content":"","tool_calls":[{"function":{"name":"f",)"
    R"("arguments":{"x":1}}}]},{"role":"tool","content":"2"},{"role":"assistant","content":"two"},)"
    R"({"role":"user","content":"b"},{"role":"assistant","content":"c"}])";

TEST(Trained, IsWhatTheAssistantSaysAndItsEnd) {
  struct Row {
    const char* model;
    const char* messages;
    std::string text;
  };
  for (
      const Row& row : std::initializer_list<Row>{
          {"chatml", kTwice,
           "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n⟦Yes<|im_end|>⟧\n"
           "<|im_start|>user\nYes<|im_end|>\n<|im_start|>assistant\n⟦Yes<|im_end|>⟧\n"},
          {"llama3", kTwice,
           "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
           "<|start_header_id|>assistant<|end_header_id|>\n\n⟦Yes<|eot_id|>⟧"
           "<|start_header_id|>user<|end_header_id|>\n\nYes<|eot_id|>"
           "<|start_header_id|>assistant<|end_header_id|>\n\n⟦Yes<|eot_id|>⟧"},
          {"mistral", kTwice, "<s>[INST] Hi [/INST]⟦ Yes</s>⟧[INST] Yes [/INST]⟦ Yes</s>⟧"},
          // The system message moves to the last question, so that no beginning is one of the whole.
          {"mistral-nemo", kSystem, "<s>[INST]a[/INST]⟦b</s>⟧[INST]S\n\nc[/INST]⟦d</s>⟧"},
          {"gemma", kTwice,
           "<bos><start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\n⟦Yes<end_of_turn>⟧\n"
           "<start_of_turn>user\nYes<end_of_turn>\n<start_of_turn>model\n⟦Yes<end_of_turn>⟧\n"},
          // Ends with another token than its turns do.
          {"phi3", kTwice,
           "<|user|>\nHi<|end|>\n<|assistant|>\n⟦Yes<|end|>⟧\n<|user|>\nYes<|end|>\n<|assistant|>\n"
           "⟦Yes<|end|>\n<|endoftext|>⟧"},
          {"qwen2.5", kTools,
           "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\na<|im_end|>\n"
           "<|im_start|>assistant\n⟦<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": "
           "1}}\n</tool_call><|im_end|>⟧\n"
           "<|im_start|>user\n<tool_response>\n2\n</"
           "tool_response><|im_end|>\n<|im_start|>assistant\n⟦two<|im_end|>⟧\n"
           "<|im_start|>user\nb<|im_end|>\n<|im_start|>assistant\n⟦c<|im_end|>⟧\n"},
          // Earlier thinking is left out, a last answer without any gets an empty one.
          {"qwen3", kTwice,
           "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n⟦Yes<|im_end|>⟧\n"
           "<|im_start|>user\nYes<|im_end|>\n<|im_start|>assistant\n⟦<think>\n\n</"
           "think>\n\nYes<|im_end|>⟧\n"},
          {"qwen3", kThought,
           "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n⟦yes<|im_end|>⟧\n"
           "<|im_start|>user\nb<|im_end|>\n<|im_start|>assistant\n⟦<think>\nso\n</think>\n\nno<|im_end|>⟧\n"},
          {"qwen3", kTools,
           "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n⟦<tool_call>\n{\"name\": \"f\", "
           "\"arguments\": "
           "{\"x\": "
           "1}}\n</tool_call><|im_end|>⟧\n<|im_start|>user\n<tool_response>\n2\n</tool_response><|im_end|>\n"
           "<|im_start|>assistant\n⟦two<|im_end|>⟧\n<|im_start|>user\nb<|im_end|>\n<|im_start|>assistant\n"
           "⟦<think>\n\n</think>\n\nc<|im_end|>⟧\n"},
          // Thinking before a call of a tool, which earlier turns lose.
          {"qwen3",
           R"([{"role":"user","content":"a"},{"role":"assistant","content":"<think>\nhm\n</think>","tool_calls":)"
           R"([{"function":{"name":"f","arguments":{}}}]},{"role":"tool","content":"2"},{"role":"assistant",)"
           R"("content":"<think>\nso\n</think>two"},{"role":"user","content":"b"},{"role":"assistant","content":"c"}])",
           "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n⟦<tool_call>\n{\"name\": \"f\", "
           "\"arguments\": "
           "{}}\n</tool_call><|im_end|>⟧\n<|im_start|>user\n<tool_response>\n2\n</tool_response><|im_end|>\n"
           "<|im_start|>assistant\n⟦two<|im_end|>⟧\n<|im_start|>user\nb<|im_end|>\n<|im_start|>assistant\n"
           "⟦<think>\n\n</think>\n\nc<|im_end|>⟧\n"},
          {"smollm", kTwice,
           "<|im_start|>system\nYou are a helpful AI assistant named "
           "SmolLM<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
           "<|im_start|>assistant\n⟦Yes<|im_end|>⟧\n<|im_start|>user\nYes<|im_end|>\n"
           "<|im_start|>assistant\n⟦Yes<|im_end|>⟧\n"},
          // The prompt that begins an answer goes on with <think>, which is not written.
          {"r1", kThought,
           "<|begin|><|User|>a<|Assistant|>⟦\n\nyes<|end|>⟧<|User|>b<|Assistant|>⟦\n\nno<|end|>⟧"},
      }) {
    EXPECT_EQ(marked(model_named(row.model), conversation_of(row.messages)), row.text) << row.model;
  }
}

TEST(Trained, IsTheLastTurnOrAll) {
  const Model chatml = model_named("chatml"), smollm = model_named("smollm");
  const std::string last =
      "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nYes<|im_end|>\n"
      "<|im_start|>user\nYes<|im_end|>\n<|im_start|>assistant\n⟦Yes<|im_end|>⟧\n";
  EXPECT_EQ(marked(chatml, conversation_of(kTwice), TrainOn::last), last);
  EXPECT_EQ(
      marked(smollm, conversation_of(kTwice), TrainOn::last).find("⟦"),
      marked(smollm, conversation_of(kTwice), TrainOn::assistant).rfind("⟦") - std::string("⟦⟧").size());
  EXPECT_TRUE(marked(chatml, conversation_of(kTwice), TrainOn::all).starts_with("⟦"));
  Conversation weighed = conversation_of(kTwice);
  weighed.messages[1]["weight"] = 0;
  EXPECT_EQ(marked(chatml, weighed), last);
}

TEST(Trained, SaysWhatCannotBeTrainedOn) {
  const Conversation twice = conversation_of(kTwice);
  const auto says = [](const std::string& text, const char* part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  says(marked(model_named("gemma"), conversation_of(kSystem)),
       "LS0262 is refused by the chat template: System role");
  says(marked(model_named("mistral"),
              conversation_of(R"([{"role":"user","content":"a"},{"role":"user","content":"b"}])")),
       "LS0262");
  says(marked(model_named("chatml"), conversation_of(R"([{"role":"user","content":"a"}])")), "LS0263");
  const char* loop = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}";
  says(marked(own_model(loop), twice), "LS0265");
  says(marked(own_model("{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}{{ m.content }}"
                        "{% endgeneration %}{{ eos_token }}{% else %}{{ m.content }}{% endif %}{% endfor %}"),
              twice),
       "LS0265");
  says(marked(own_model("{% generation %}{% endgeneration %}{{ messages[0].content }}"), twice), "LS0263");
  // Nothing tells where the answers are: the template prints only how many there are.
  says(marked(own_model("{{ messages | length }}</s>"), twice), "LS0264");
}

TEST(Trained, PartsOfTextAreTakenOrPutTogether) {
  const char* parts = R"([{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},)"
                      R"({"role":"assistant","content":[{"type":"text","text":"c"}]}])";
  EXPECT_EQ(marked(model_named("chatml"), conversation_of(parts)),
            "<|im_start|>user\nab<|im_end|>\n<|im_start|>assistant\n⟦c<|im_end|>⟧\n");
  EXPECT_EQ(marked(model_named("gemma3"), conversation_of(parts)),
            "<bos><start_of_turn>user\nab<end_of_turn>\n<start_of_turn>model\n⟦c<end_of_turn>⟧\n");
}

TEST(Trained, TheDayIsAlwaysTheSame) {
  EXPECT_NE(marked(model_named("llama3.2"), conversation_of(kTwice)).find("Today Date: 26 Jul 2024"),
            std::string::npos);
  Conversation dated = conversation_of(kTwice);
  dated.names["date_string"] = "1 Jan 2030";
  EXPECT_NE(marked(model_named("llama3.2"), dated).find("Today Date: 1 Jan 2030"), std::string::npos);
}

// ---- tokens

class Encoding : public testing::Test {
 protected:
  // Of a few words and these special tokens.
  std::unique_ptr<text::Tokenizer> tokenizer(std::vector<std::string> special) {
    text::BpeTrainer trainer({.vocab_size = 320, .special_tokens = std::move(special)});
    trainer.add("Yes yes user assistant hello hello world world the the cat sat on the mat");
    text::save_tokenizer(trainer.train(), folder_.path());
    return text::open_tokenizer(folder_.path());
  }
  base::TemporaryFolder folder_;
};

// The brackets again, from tokens.
std::string marked_tokens(const EncodedChat& encoded, const text::Tokenizer& tokenizer) {
  std::string text;
  for (size_t i = 0; i < encoded.ids.size(); ++i) {
    const bool before = i > 0 && encoded.trained[i - 1];
    if (encoded.trained[i] != before) text += encoded.trained[i] ? "⟦" : "⟧";
    text += tokenizer.decode(std::span(&encoded.ids[i], 1));
  }
  return text + (encoded.trained.back() ? "⟧" : "");
}

TEST_F(Encoding, TokensAreThoseOfTheWhole) {
  const auto special = tokenizer({"<|im_start|>", "<|im_end|>"});
  const Model chatml = model_named("chatml");
  ChatEncoder encoder(chatml.spoken, *special, TrainOn::assistant);
  const EncodedChat encoded = encoder.encode(Json{{"messages", Json::parse(kTwice)}});
  EXPECT_EQ(marked_tokens(encoded, *special),
            "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n⟦Yes<|im_end|>⟧\n"
            "<|im_start|>user\nYes<|im_end|>\n<|im_start|>assistant\n⟦Yes<|im_end|>⟧\n");
  std::vector<int32_t> whole;
  special->encoder()->encode(render(chatml.spoken, conversation_of(kTwice), TrainOn::all, {}).text, whole,
                             {.add_special = false});
  EXPECT_EQ(encoded.ids, whole);
}

// A token may reach over the edge between the template's words and the assistant's: it is trained on.
TEST_F(Encoding, TokensOverAnEdgeAreTrainedOn) {
  const auto plain = tokenizer({"</s>"});
  const Model model = own_model(
      "{% for m in messages %}{{ m.role }} {% if m.role == 'assistant' %}{% generation %}"
      "{{ m.content }}</s>{% endgeneration %}{% else %}{{ m.content }} {% endif %}{% endfor %}");
  ChatEncoder encoder(model.spoken, *plain, TrainOn::assistant);
  const EncodedChat encoded = encoder.encode(
      Json{{"messages",
            Json::parse(R"([{"role":"user","content":"the cat"},{"role":"assistant","content":"hello"}])")}});
  std::vector<int32_t> whole;
  plain->encoder()->encode("user the cat assistant hello</s>", whole, {.add_special = false});
  EXPECT_EQ(encoded.ids, whole);
  EXPECT_EQ(marked_tokens(encoded, *plain), "user the cat assistant⟦ hello</s>⟧");
}

// Random conversations: what is trained on, decoded, is what the assistant said, each time with the end of
// its turn.
TEST_F(Encoding, OfRandomConversations) {
  const auto special = tokenizer({"<|im_start|>", "<|im_end|>"});
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (const char* name : {"chatml", "qwen2.5", "smollm", "qwen3"}) {
    const Model model = model_named(name);
    ChatEncoder encoder(model.spoken, *special, TrainOn::assistant);
    for (int round = 0; round < 40; ++round) {
      Json messages = Json::array();
      std::string said;
      const size_t turns = 1 + random() % 5;
      for (size_t turn = 0; turn < turns; ++turn) {
        for (const char* role : {"user", "assistant"}) {
          std::string content(1 + random() % 9, ' ');
          for (char& c : content) c = "ab <>|\n'xyz"[random() % 11];
          content = "c" + content + "d";  // white space at the ends is the template's to keep
          messages.push_back({{"role", role}, {"content", content}});
          if (role != std::string("assistant")) continue;
          const bool thinks = name == std::string("qwen3") && turn + 1 == turns;
          said += (thinks ? "<think>\n\n</think>\n\n" : "") + content + "<|im_end|>";
        }
      }
      const EncodedChat encoded = encoder.encode(Json{{"messages", messages}});
      std::vector<int32_t> trained;
      for (size_t i = 0; i < encoded.ids.size(); ++i) {
        if (encoded.trained[i]) trained.push_back(encoded.ids[i]);
      }
      ASSERT_EQ(special->decode(trained), said) << name << messages.dump();
    }
  }
}

}  // namespace
}  // namespace lockstep::chat
