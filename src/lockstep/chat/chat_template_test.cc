// Where a chat template is found, and what is wrong with one. What templates render: trained_test.cc.
#include "lockstep/chat/chat_template.h"

#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/base/temporary_folder.h"

namespace lockstep::chat {
namespace {

const char* const kConfig =
    R"({"bos_token": "<s>", "eos_token": {"content": "</s>", "special": true}, "pad_token": null,
  "chat_template": "{{ bos_token }}{% for m in messages %}{{ m.role }}:{{ m.content }}{{ eos_token }}{% endfor %}{% if add_generation_prompt %}a:{% endif %}"})";

std::string hello(const std::string& folder, Prompt prompt) {
  const ChatTemplate found = open_template({.file = "", .folders = {folder}});
  const Names names = found.names_of({.messages = Json::parse(R"([{"role": "user", "content": "hi"}])")});
  return found.render(names, 1, prompt).text;
}

TEST(ChatTemplate, IsFoundWhereTransformersLooks) {
  base::TemporaryFolder folder;
  EXPECT_THROW(hello(folder.path(), Prompt::none), base::ConfigError);
  EXPECT_THROW(hello(folder.path() + "/absent", Prompt::none), base::ConfigError);
  folder.write("tokenizer_config.json", kConfig);
  EXPECT_EQ(hello(folder.path(), Prompt::generation), "<s>user:hi</s>a:");
  EXPECT_EQ(hello(folder.path(), Prompt::none), "<s>user:hi</s>");
  folder.write("chat_template.jinja", "{{ bos_token }}own");
  EXPECT_EQ(hello(folder.path(), Prompt::generation), "<s>own");
}

TEST(ChatTemplate, OfSeveralTheDefaultCounts) {
  base::TemporaryFolder folder;
  folder.write(
      "tokenizer_config.json",
      R"({"chat_template": [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}]})");
  EXPECT_EQ(hello(folder.path(), Prompt::generation), "d");
}

TEST(ChatTemplate, WhatIsWrongIsAnError) {
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
    EXPECT_THROW(hello(folder.path(), Prompt::none), base::DataError) << row.text;
  }
  base::TemporaryFolder folder;
  folder.write("chat_template.jinja", "{{ raise_exception('no system') }}");
  EXPECT_THROW(hello(folder.path(), Prompt::none), jinja::Failure);
}

}  // namespace
}  // namespace lockstep::chat
