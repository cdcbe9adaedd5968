// lockstep generate and eval as a person uses them: prompts, files, stops, choices, and what is wrong with
// them.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "lockstep/base/temporary_folder.h"
#include "lockstep/cli/testing.h"

namespace lockstep::cli {
namespace {

using Json = nlohmann::json;

const char* const kTrain =
    "$L train run.steps=30 optim.lr=0.01 run.device=cpu model.layers=1 model.hidden=16 model.heads=2 "
    "model.context=32 "
    "data.seq_len=16 "
    "batch.global=4 batch.slices=1 batch.strands=1 log.eval_every=0 data.kind=text data.path=book.txt --json "
    "2>/dev/null";

std::vector<Json> lines_of(const std::string& folder, const std::string& line) {
  const Outcome outcome = run_shell(folder, line + " 2>/dev/null");
  EXPECT_EQ(outcome.code, 0) << line << "\n" << outcome.output;
  std::vector<Json> lines;
  std::istringstream text(outcome.output);
  for (std::string one; std::getline(text, one);) lines.push_back(Json::parse(one, nullptr, false));
  return lines;
}

// A model of bytes that has seen a little text.
class GenerateCommand : public ::testing::Test {
 protected:
  GenerateCommand() {
    std::string text;
    for (int k = 0; k < 100; ++k) text += "one line of a book\n";
    folder_.write("book.txt", text);
    EXPECT_EQ(run_shell(folder_.path(), kTrain).code, 0);
  }
  std::vector<Json> lines(const std::string& line) { return lines_of(folder_.path(), line); }
  void expect(const std::vector<Row>& rows) { expect_rows(folder_.path(), rows); }
  base::TemporaryFolder folder_;
};

TEST_F(GenerateCommand, TextsAreTheSameAloneInABatchAndFromAFile) {
  folder_.write("prompts.txt", "one\na line of\nbook\n");
  folder_.write("prompts.jsonl",
                "{\"prompt\": \"one\"}\n\n{\"prompt\": \"a line of\"}\n{\"prompt\": \"book\"}\n");
  const std::string options = " --tokens 40 --seed 3 --json --logprobs";
  std::vector<Json> alone;
  for (const char* prompt : {"one", "'a line of'", "book"})
    alone.push_back(lines(std::string("$L generate --prompt ") + prompt + options).at(0));
  for (const char* line :
       {"$L generate --prompt one --prompt 'a line of' --prompt book", "$L generate --prompts prompts.txt",
        "$L generate --prompts prompts.jsonl --batch 2", "cat prompts.txt | $L generate --prompts -"}) {
    EXPECT_EQ(lines(line + options), alone) << line;
  }
  EXPECT_EQ(alone[1]["completion"].get<std::string>(), alone[1]["text"].get<std::string>().substr(9));
  EXPECT_EQ(alone[1]["finish_reason"], "length");
  EXPECT_EQ(alone[1]["tokens"].size(), 49u) << "a byte is a token; 40 more than the context of 32 holds";
  EXPECT_EQ(alone[1]["logprobs"].size(), 40u);
  const std::vector<Json> samples = lines("$L generate --prompt one --samples 3" + options);
  ASSERT_EQ(samples.size(), 3u);
  EXPECT_EQ(samples[0], alone[0]);
  EXPECT_NE(samples[1]["text"], alone[0]["text"]);
}

TEST_F(GenerateCommand, StopsBeforeAStringAndSaysSo) {
  const std::string greedy = "$L generate --prompt one --temperature 0 --tokens 25 --json";
  const std::string whole = lines(greedy).at(0)["completion"];
  ASSERT_GE(whole.size(), 5u);
  const std::string stop = whole.substr(3, 2);
  const Json stopped = lines(fmt::format("{} --stop '{}'", greedy, stop)).at(0);
  EXPECT_EQ(stopped["finish_reason"], "stop");
  EXPECT_EQ(stopped["completion"], whole.substr(0, whole.find(stop)));
  // The same without JSON, as it grows.
  const Outcome shown =
      run_shell(folder_.path(), fmt::format("$L generate --prompt one --temperature 0 --tokens 25 "
                                            "--stop '{}' 2>/dev/null",
                                            stop));
  EXPECT_EQ(shown.output, stopped["text"].get<std::string>() + "\n");
}

TEST_F(GenerateCommand, WhatIsWrongIsSaid) {
  folder_.write("empty.txt", "");
  folder_.write("blank.txt", "one\n\ntwo\n");
  folder_.write("bad.jsonl", "{\"prompt\": \"one\"}\n{\"text\": \"two\"}\n");
  folder_.write("both.jsonl", "{\"prompt\": \"one\", \"messages\": []}\n");
  folder_.write("chat.jsonl", "{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}]}\n");
  expect({{"$L generate --top-p 0", 2, "--top-p must be above 0"},
          {"$L generate --top-p 1.5", 2, "at most 1"},
          {"$L generate --top-p nan", 2, "--top-p"},
          {"$L generate --min-p -1", 2, "--min-p must be from 0 to 1"},
          {"$L generate --repetition-penalty 0", 2, "--repetition-penalty must be above 0"},
          {"$L generate --temperature -1", 2, "--temperature must be"},
          {"$L generate --tokens 0", 2, "--tokens must be at least 1"},
          {"$L generate --max-tokens 0", 2, "--tokens must be at least 1"},
          {"$L generate --samples 0", 2, "--samples"},
          {"$L generate --batch 0", 2, "--batch"},
          {"$L generate --stop ''", 2, "--stop"},
          {"$L generate --logprobs", 2, "--json"},
          {"$L generate --prompt a --prompts b", 2, "not both"},
          {"$L generate --prompts absent.txt", 1, "absent.txt"},
          {"$L generate --prompts empty.txt", 2, "empty.txt has no prompts"},
          {"$L generate --prompts blank.txt", 2, "blank.txt line 2 is empty"},
          {"$L generate --prompts bad.jsonl", 2, "bad.jsonl line 2 has neither"},
          {"$L generate --prompts both.jsonl", 2, "both.jsonl line 1 has both"},
          {"$L generate --prompts chat.jsonl", 2, "LS0199"},
          {"$L generate --chat --prompt hello", 2, "no tokenizer"},
          {"$L generate --prompt \"$(printf 'a\\377')\"", 2, "--prompt is not UTF-8 from byte 1 on (0xFF)"},
          {"$L generate --prompt $(printf 'a%.0s' $(seq 33))", 2,
           "33 tokens, more than the model's context of 32"},
          {"$L generate --prompt $(printf 'a%.0s' $(seq 32)) --tokens 3", 0, "aaaa"},
          {"$L generate --tokens 3", 0, "tokens/s"},
          {"$L generate --prompt '' --tokens 3", 0, "tokens/s"}});
}

TEST_F(GenerateCommand, DocumentsAreEvaluatedOneByOne) {
  folder_.write("docs.jsonl", "{\"text\": \"one line of a book\"}\n{\"text\": \"x\"}\n{\"text\": \"" +
                                  std::string(100, 'a') + "\"}\n");
  folder_.write("bad.jsonl", "{\"text\": \"one\"}\n{\"body\": \"two\"}\n{\"text\": \"three\"}\n");
  const std::vector<Json> said = lines("$L eval runs/first data.path=docs.jsonl --by-document --json");
  ASSERT_EQ(said.size(), 4u);
  EXPECT_EQ(said[0]["tokens"], 17) << "every byte but the first";
  EXPECT_EQ(said[1]["tokens"], 0);
  EXPECT_EQ(said[2]["tokens"], 99);
  EXPECT_EQ(said[3]["documents"], 3);
  EXPECT_NEAR(said[3]["logprob"].get<double>(),
              said[0]["logprob"].get<double>() + said[2]["logprob"].get<double>(), 1e-9);
  // A window that holds the document is the loss of `eval` without windows that overlap.
  expect({{"$L eval runs/first data.path=docs.jsonl --by-document", 0, "3 documents, 116 tokens"},
          {"$L eval runs/first data.path=docs.jsonl --by-document --stride 16", 2, "below the window of 16"},
          {"$L eval runs/first data.path=docs.jsonl --stride 3", 2, "--by-document"},
          {"$L eval runs/first data.path=bad.jsonl --by-document", 3, "bad.jsonl line 2"},
          {"$L eval runs/first data.path=bad.jsonl --by-document --on-error skip", 0, "2 documents"},
          {"$L eval runs/first data.path=absent.jsonl --by-document", 3, "absent.jsonl"},
          {"$L eval runs/first data.path=docs.jsonl --by-document --on-error perhaps", 2, "stop or skip"}});
}

TEST_F(GenerateCommand, ChoicesAreScoredAndCounted) {
  folder_.write("choices.jsonl",
                "{\"context\": \"one line of\", \"choices\": [\"a book\", \"qqqqqq\"], \"answer\": 0}\n"
                "{\"question\": \"one\", \"choices\": [\"zz\", \"line\"], \"answer\": \"line\"}\n\n"
                "{\"prompt\": \"one line\", \"completion\": \" of\"}\n");
  folder_.write("bad.jsonl",
                "{\"context\": \"a\", \"choices\": [\"b\", \"c\"], \"answer\": 2}\n"
                "{\"context\": \"a\", \"choices\": [], \"answer\": 0}\n"
                "{\"context\": \"a\", \"choices\": [\"b\"], \"answer\": \"z\"}\n"
                "{\"context\": \"a\", \"choices\": [\"\"], \"answer\": 0}\n"
                "{\"choices\": [\"b\"], \"answer\": 0}\n"
                "[1]\nnonsense\n"
                "{\"prompt\": \"a\", \"completion\": \"\"}\n"
                "{\"context\": \"a\", \"choices\": [\"b\", \"c\"], \"answer\": 1}\n");
  const std::vector<Json> said = lines("$L eval runs/first --choices choices.jsonl --json");
  ASSERT_EQ(said.size(), 4u);
  EXPECT_EQ(said[1]["line"], 2);
  EXPECT_EQ(said[1]["logprobs"].size(), 2u);
  EXPECT_EQ(said[2]["line"], 4);
  EXPECT_EQ(said[2]["tokens"], 3);
  EXPECT_EQ(said[3]["questions"], 2);
  expect(
      {{"$L eval runs/first --choices choices.jsonl", 0, "2 questions: acc "},
       {"$L eval runs/first --choices bad.jsonl", 3, "bad.jsonl line 1 has \"answer\" 2, but choices 0 to 1"},
       {"$L eval runs/first --choices bad.jsonl --on-error skip", 0, "8 lines were skipped"},
       {"$L eval runs/first --choices bad.jsonl --on-error skip", 0, "1 questions"},
       {"$L eval runs/first --choices absent.jsonl", 1, "absent.jsonl"},
       {"$L eval runs/first --choices choices.jsonl --by-document", 2, "not both"}});
}

}  // namespace
}  // namespace lockstep::cli
