// lockstep tokenize as a person uses it, and a model that speaks through its tokenizer.
#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "lockstep/base/temporary_folder.h"
#include "lockstep/cli/testing.h"

namespace lockstep::cli {
namespace {

using nlohmann::json;

json json_of(const std::string& folder, const std::string& line) {
  const Outcome outcome = run_shell(folder, line);
  EXPECT_EQ(outcome.code, 0) << line << "\n" << outcome.output;
  return json::parse(outcome.output, nullptr, false);
}

void write_corpus(const base::TemporaryFolder& folder, const std::string& name, int lines) {
  std::string text;
  for (int i = 0; i < lines; ++i)
    text += "the cat sat on the mat, and the other cat did not é " + std::to_string(i % 97) + "\n";
  folder.write(name, text);
}

const char* const kLearn =
    "$L tokenize --train book.txt --vocab-size 300 --special '<|endoftext|>' --out mine --json";

TEST(TokenizeCommand, LinesGoThereAndBack) {
  const base::TemporaryFolder folder;
  write_corpus(folder, "book.txt", 50);
  EXPECT_EQ(json_of(folder.path(), kLearn)["tokens"], 300);
  const std::string there = "$L tokenize --ids --tokenizer mine",
                    back = "$L tokenize --decode --tokenizer mine";
  expect_rows(folder.path(),
              {{"printf 'the cat\\n\\nthe mat, é' | " + there + " | " + back, 0, "the cat\n\nthe mat, é\n"},
               {"printf '\"a\\\\nb\"\\n' | " + there + " --json | " + back + " --json", 0, "\"a\\nb\"\n"},
               {"echo '<|endoftext|>' | " + there, 0, "0\n"},
               {"echo '<|endoftext|>' | " + there + " --special-as-text | " + back, 0, "<|endoftext|>\n"},
               {"echo '5 x' | " + back, 3, "LS0246"},
               {"echo '5 300' | " + back, 3, "from 0 to 299"},
               {"echo 5 | " + there + " --json", 3, "a JSON string is expected"},
               {"$L tokenize --ids", 2, "--tokenizer names"},
               {"$L tokenize --ids --tokenizer absent", 2, "LS0240"},
               {"$L tokenize --tokenizer mine --out x", 2, "takes files of text"},
               {"$L tokenize book.txt --tokenizer mine", 2, "--out names"},
               {"$L tokenize --train book.txt --vocab-size 20 --out x", 2, "LS0248"}});
}

// Killed while it works, at whatever moment: what can be seen is whole, and the same command ends it.
TEST(TokenizeCommand, GoesOnAfterAKill) {
  const base::TemporaryFolder folder;
  write_corpus(folder, "book.txt", 50);
  json_of(folder.path(), kLearn);
  for (const char* name : {"in/a.txt", "in/b.txt", "in/c.txt"}) write_corpus(folder, name, 60'000);
  const std::string command = "$L tokenize in --tokenizer mine --out tokens --json 2>/dev/null";
  const json whole =
      json_of(folder.path(), "$L tokenize in --tokenizer mine --out wanted --json 2>/dev/null");
  run_shell(folder.path(),
            "$L tokenize in --tokenizer mine --out tokens >/dev/null 2>&1 & pid=$!; "
            "until [ -s tokens/.tokenize.jsonl ] || ! kill -0 $pid 2>/dev/null; do :; done; kill -9 $pid; "
            "wait $pid");
  const json again = json_of(folder.path(), command);
  EXPECT_GE(again["done_before"].get<int>(), 1);
  EXPECT_EQ(json_of(folder.path(), command)["done_before"], 3);
  expect_rows(folder.path(), {{"cat wanted/*.bin | md5sum | cut -c1-32 >w; cat tokens/*.bin | md5sum | cut "
                               "-c1-32 | diff - w && echo same",
                               0, "same"},
                              {"ls tokens | wc -l", 0, "3"}});
  EXPECT_EQ(whole["documents"], 3);
}

TEST(TokenizeCommand, AModelSpeaksThroughItsTokenizer) {
  const base::TemporaryFolder folder;
  write_corpus(folder, "book.txt", 400);
  json_of(folder.path(), kLearn);
  json_of(folder.path(), "$L tokenize book.txt --tokenizer mine --out tokens --json 2>/dev/null");
  const std::string train =
      "$L train run.device=cpu model.layers=1 model.hidden=32 data.seq_len=16 batch.global=8 batch.slices=8 "
      "run.steps=4 "
      "log.eval_every=0 --json 2>/dev/null ";
  const json filed = json_of(folder.path(), train + "data.path=tokens data.tokenizer=mine run.name=a");
  const json direct = json_of(folder.path(), train + "data.path=book.txt data.tokenizer=mine run.name=b");
  EXPECT_EQ(filed["params_hash"], direct["params_hash"]) << "from token files and from text: the same tokens";
  const json said = json_of(folder.path(), "$L generate runs/a --prompt 'the cat' --tokens 8 --json");
  EXPECT_EQ(said["text"].get<std::string>().substr(0, 7), "the cat");
  json_of(folder.path(), "$L export runs/a plain --json");
  run_shell(folder.path(), "cp mine/tokenizer.json plain/");
  EXPECT_EQ(json_of(folder.path(), "$L generate plain --prompt 'the cat' --tokens 8 --json")["text"],
            said["text"]);
  const json on_text =
      json_of(folder.path(), "$L eval plain data.path=book.txt data.seq_len=16 run.device=cpu --json");
  const json on_files =
      json_of(folder.path(), "$L eval plain data.path=tokens data.seq_len=16 run.device=cpu --json");
  EXPECT_EQ(on_text["loss_hex"], on_files["loss_hex"]);
  json_of(folder.path(), "$L tokenize --train book.txt --vocab-size 280 --out other --json");
  expect_rows(folder.path(),
              {{train + "data.path=tokens data.tokenizer=other run.name=c 2>&1", 3, "LS0237"},
               {train + "data.path=tokens data.tokenizer=absent run.name=c 2>&1", 2, "LS0207"}});
}

}  // namespace
}  // namespace lockstep::cli
