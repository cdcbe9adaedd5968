#include "lockstep/chat/model_template.h"

#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/base/temporary_folder.h"

namespace lockstep::chat {
namespace {

const char* const kConfig =
    R"({"bos_token": "<s>", "eos_token": {"content": "</s>", "special": true}, "pad_token": null,
  "chat_template": "{{ bos_token }}{% for m in messages %}{{ m.role }}:{{ m.content }}{{ eos_token }}{% endfor %}{% if add_generation_prompt %}a:{% endif %}"})";

Conversation hello(bool answer) {
  return {.messages = nlohmann::ordered_json::parse(R"([{"role": "user", "content": "hi"}])"),
          .add_generation_prompt = answer};
}

TEST(ModelTemplate, IsFoundWhereTransformersLooks) {
  base::TemporaryFolder folder;
  EXPECT_FALSE(ModelTemplate::find(folder.path()));
  EXPECT_FALSE(ModelTemplate::find(folder.path() + "/absent"));
  folder.write("tokenizer_config.json", kConfig);
  const auto found = ModelTemplate::find(folder.path());
  ASSERT_TRUE(found);
  EXPECT_EQ(found->render(hello(true)).text, "<s>user:hi</s>a:");
  EXPECT_EQ(found->render(hello(false)).text, "<s>user:hi</s>");
  folder.write("chat_template.jinja", "{{ bos_token }}own");
  EXPECT_EQ(ModelTemplate::find(folder.path())->render(hello(true)).text, "<s>own");
}

TEST(ModelTemplate, OfSeveralTheDefaultCounts) {
  base::TemporaryFolder folder;
  folder.write(
      "tokenizer_config.json",
      R"({"chat_template": [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}]})");
  EXPECT_EQ(ModelTemplate::find(folder.path())->render(hello(true)).text, "d");
}

TEST(ModelTemplate, WhatIsWrongIsAnError) {
  struct Row {
    const char* file;
    const char* text;
  };
  for (const Row& row :
       {Row{"chat_template.jinja", "{% for %}"}, Row{"tokenizer_config.json", "not json"},
        Row{"tokenizer_config.json", R"({"chat_template": 3})"},
        Row{"tokenizer_config.json", R"({"chat_template": [{"name": "rag", "template": "x"}]})"}}) {
    base::TemporaryFolder folder;
    folder.write(row.file, row.text);
    EXPECT_THROW(ModelTemplate::find(folder.path()), base::ConfigError) << row.text;
  }
  base::TemporaryFolder folder;
  folder.write("chat_template.jinja", "{{ raise_exception('no system') }}");
  EXPECT_THROW(ModelTemplate::find(folder.path())->render(hello(true)), base::ConfigError);
}

}  // namespace
}  // namespace lockstep::chat
