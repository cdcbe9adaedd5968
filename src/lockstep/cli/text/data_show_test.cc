// lockstep data show, and fine-tuning by recipes/sft.toml, as a person uses them.
#include <nlohmann/json.hpp>

#include "lockstep/base/temporary_folder.h"
#include "lockstep/cli/testing.h"

namespace lockstep::cli {
namespace {

using nlohmann::json;

const char* const kTemplate =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

// A tokenizer with a template, and conversations.
void write_chat(const base::TemporaryFolder& folder, int count) {
  folder.write("words.txt", "user assistant hello world\n");
  EXPECT_EQ(run_shell(folder.path(),
                      "$L tokenize --train words.txt --vocab-size 300 --special "
                      "'<|endoftext|>,<|im_start|>,<|im_end|>' --out model")
                .code,
            0);
  folder.write("model/chat_template.jinja", kTemplate);
  folder.write("model/tokenizer_config.json", R"({"eos_token": "<|im_end|>"})");
  std::string text;
  for (int i = 0; i < count; ++i) {
    text += R"({"messages": [{"role": "user", "content": "hello )" + std::to_string(i) +
            R"("}, {"role": "assistant", "content": "world"}]})" + "\n";
  }
  folder.write("chat.jsonl", text);
}

TEST(DataShow, PrintsWhatTheModelSees) {
  const base::TemporaryFolder folder;
  write_chat(folder, 3);
  folder.write("bad.jsonl", "{\"messages\": 5}\n{\"prompt\": \"a\\u001b[31m\", \"completion\": \"b\"}\n");
  folder.write("book.txt", "hello world hello world");
  const std::string show = "$L data show ", with = " --tokenizer model";
  expect_rows(folder.path(),
              {{show + "chat.jsonl" + with, 0,
                "<|im_start|>user\nhello 0<|im_end|>\n<|im_start|>assistant\n⟦world<|im_end|>⟧"},
               {show + "chat.jsonl --sample 2" + with, 0, "sample 2 of 3"},
               {show + "chat.jsonl data.train_on=all" + with, 0, "⟦user\nhello 0"},
               {show + "chat.jsonl data.pack=true data.seq_len=64" + with, 0, "--- document 2 ---"},
               {show + "bad.jsonl" + with, 0, "skipped: bad.jsonl line 1 (byte 0) has a field \"messages\""},
               {show + "bad.jsonl" + with, 0, "a\\x1b[31m"},
               {show + "bad.jsonl data.on_error=stop" + with, 3, "LS0261"},
               {show + "book.txt data.seq_len=4 --count 2", 0, "sample 1 of 5"},
               {show + "chat.jsonl", 2, "LS0270"},
               {show + "chat.jsonl --sample 3" + with, 2, "there are 3 samples"},
               {show + "chat.jsonl --count 0" + with, 2, "at least 1"},
               {show + "absent.jsonl" + with, 3, "absent.jsonl"},
               {show + "--help", 0, "--template"},
               {"$L data", 2, "lockstep data show PATH"},
               {show + "chat.jsonl" + with + " | head -1", 0, "sample 0 of 3"}});
  const Outcome outcome = run_shell(folder.path(), show + "chat.jsonl --json --count 2" + with);
  const json report = json::parse(outcome.output, nullptr, false);
  ASSERT_TRUE(report.is_object()) << outcome.output;
  EXPECT_EQ(report["shown"].size(), 2u);
  EXPECT_EQ(report["statistics"]["documents"], 3);
  EXPECT_EQ(report["shown"][0]["tokens"].size(), report["shown"][0]["trained"].size());
}

// A folder as Hugging Face has them: weights, tokenizer and template come from model.from.
TEST(DataShow, FineTunesByItsRecipe) {
  const base::TemporaryFolder folder;
  write_chat(folder, 40);
  const std::string sft = "$L train " + std::string(LOCKSTEP_SOURCE) +
                          "/recipes/sft.toml model.from=hf data.path=chat.jsonl data.seq_len=64 run.steps=3 "
                          "batch.global=4 batch.slices=4 run.device=cpu ";
  expect_rows(
      folder.path(),
      {{"$L train model.family=qwen3 model.layers=1 model.hidden=32 model.heads=2 data.path=chat.jsonl "
        "data.tokenizer=model data.seq_len=64 run.steps=1 batch.global=4 optim.warmup=0 run.name=base "
        "run.device=cpu",
        0, "done"},
       {"$L export runs/base hf && cp model/* hf/", 0, "tensors"},
       {sft, 0, "epochs  0.31: run.steps = 3 of batch.global = 4 samples"},
       {sft + "run.name=packed data.pack=true", 0, "packed, "},
       {"rm hf/chat_template.jinja; " + sft + "run.name=other", 2, "LS0267"}});
  const auto hash_of = [&](const std::string& more) {
    const Outcome outcome =
        run_shell(folder.path(),
                  sft + more + " --json data.pack=true data.chat_template=t.jinja 2>/dev/null | tail -n 1");
    return json::parse(outcome.output, nullptr, false).value("params_hash", outcome.output);
  };
  folder.write("t.jinja", kTemplate);
  EXPECT_EQ(hash_of("run.name=one"), hash_of("run.name=two --nproc 2"));
}

}  // namespace
}  // namespace lockstep::cli
