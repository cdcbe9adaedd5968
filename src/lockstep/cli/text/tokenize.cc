// lockstep tokenize: text to tokens and back, token files, and new tokenizers.
#include <fmt/format.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/base/hash.h"
#include "lockstep/base/text.h"
#include "lockstep/cli/commands.h"
#include "lockstep/cli/print.h"
#include "lockstep/cli/text/tokenize_lines.h"
#include "lockstep/data/corpus/tokenize.h"
#include "lockstep/data/formats/files.h"
#include "lockstep/store/in_turn.h"
#include "lockstep/store/local.h"
#include "lockstep/terminal/live_line.h"
#include "lockstep/terminal/terminal.h"
#include "lockstep/text/bpe_trainer.h"

namespace lockstep::cli {
namespace {

using nlohmann::json;

struct Wanted {
  std::vector<std::string> files;
  LinesWanted lines;
  std::string out, field = "text", on_error = "stop";
  std::vector<std::string> special;
  int64_t vocab_size = 32000;
  bool ids = false, train = false, no_special = false, as_text = false, json = false;
};

data::FoundFiles inputs_of(const Wanted& wanted) {
  data::FoundFiles out;
  for (const std::string& file : wanted.files) {
    data::FoundFiles found =
        data::find_files({.key = "FILES", .path = file, .remote = data::FileQuery::Remote::in_turn});
    out.files.insert(out.files.end(), found.files.begin(), found.files.end());
    out.objects.merge(found.objects);
  }
  if (out.files.empty()) {
    throw base::ConfigError(
        109,
        "tokenize takes files of text, as in lockstep tokenize corpus/*.jsonl --tokenizer llama3/ --out "
        "tokens/, or --ids for lines from standard input");
  }
  return out;
}

double seconds_since(int64_t begun) { return static_cast<double>(base::monotonic_ns() - begun) * 1e-9; }

double rate(double bytes, double seconds) { return seconds > 0 ? bytes / seconds : 0; }

void show_progress(terminal::LiveLine& line, const data::TokenizeProgress& now, double seconds) {
  line.update(fmt::format("file {}/{}  {} of {}  {} tokens  {}/s", std::min(now.files_done + 1, now.files),
                          now.files, base::human_bytes(static_cast<double>(now.bytes_done)),
                          base::human_bytes(static_cast<double>(now.bytes)),
                          base::human_count(static_cast<double>(now.tokens)),
                          base::human_bytes(rate(static_cast<double>(now.bytes_done), seconds))));
}

int make_files(const Wanted& wanted) {
  if (wanted.out.empty())
    throw base::ConfigError(109, "--out names the folder for the token files: --out tokens/");
  data::FoundFiles inputs = inputs_of(wanted);
  data::TokenizeJob job{.inputs = std::move(inputs.files),
                        .objects = std::move(inputs.objects),
                        .folder = wanted.out,
                        .options = {}};
  job.options.corpus.field = wanted.field;
  job.options.encoding = wanted.lines.encoding;
  job.options.end_documents = !wanted.no_special;
  job.options.on_error = wanted.on_error == "skip" ? data::OnError::skip : data::OnError::stop;
  const auto tokenizer = text::open_tokenizer(store::local_small_files(wanted.lines.tokenizer));
  terminal::LiveLine line(stderr, terminal::terminal_of(STDERR_FILENO));
  const int64_t begun = base::monotonic_ns();
  const data::TokenizeResult result = data::tokenize_files(
      job, *tokenizer,
      [&](const data::TokenizeProgress& now) { show_progress(line, now, seconds_since(begun)); });
  line.finish();
  const double seconds = seconds_since(begun);
  const data::TokenizeCounts& counts = result.counts;
  for (const std::string& fault : counts.faults) remark("skipped: {}\n", fault);
  if (wanted.json) {
    print("{}\n", json{{"folder", wanted.out},
                       {"files", result.files},
                       {"inputs", job.inputs.size()},
                       {"done_before", result.done_before},
                       {"documents", counts.documents},
                       {"tokens", counts.tokens},
                       {"bytes", counts.bytes},
                       {"text_bytes", counts.text_bytes},
                       {"skipped", counts.skipped},
                       {"seconds", seconds},
                       {"tokenizer", tokenizer->describe()},
                       {"tokenizer_hash", base::hex64(tokenizer->hash())},
                       {"vocab", tokenizer->vocab()}}
                      .dump());
    return 0;
  }
  print("{}: {} tokens of {} documents, from {} in {} ({}/s)\n", wanted.out,
        base::human_count(static_cast<double>(counts.tokens)), counts.documents,
        base::human_bytes(static_cast<double>(counts.bytes)), base::human_duration(seconds),
        base::human_bytes(rate(static_cast<double>(counts.bytes), seconds)));
  if (result.done_before > 0)
    print("{} of {} inputs were done before\n", result.done_before, job.inputs.size());
  if (counts.skipped > 0) print("{} documents were skipped\n", counts.skipped);
  print("{}; train on them with data.path={} data.tokenizer={}\n", tokenizer->describe(), wanted.out,
        wanted.lines.tokenizer);
  return 0;
}

int learn(const Wanted& wanted) {
  if (wanted.out.empty())
    throw base::ConfigError(109, "--out names the folder for the new tokenizer.json: --out mine/");
  const data::FoundFiles inputs = inputs_of(wanted);
  const int64_t begun = base::monotonic_ns();
  text::BpeTrainer trainer({.vocab_size = wanted.vocab_size, .special_tokens = wanted.special});
  int64_t skipped = 0;
  store::InTurn in_turn(inputs.files, inputs.objects);
  for (size_t i = 0; i < inputs.files.size(); ++i) {
    const std::string file = in_turn.local(i);
    const auto reader = data::open_corpus(file, {.field = wanted.field, .by_lines = true});
    if (reader->holds_tokens())
      throw base::ConfigError(109, fmt::format("{} holds tokens in \"{}\", and a tokenizer learns from text; "
                                               "name another column with --field",
                                               file, wanted.field));
    const auto use = [&](const data::Document& document) { trainer.add(document.text); };
    const auto bad = [&](const data::BadDocument& document) {
      if (wanted.on_error == "stop") throw base::DataError(document.number, document.sentence);
      ++skipped;
    };
    while (const auto part = reader->next_part()) reader->each_document(*part, use, bad);
  }
  const text::TrainedBpe learned = trainer.train();
  text::save_tokenizer(learned, wanted.out);
  if (wanted.json) {
    print("{}\n", json{{"folder", wanted.out},
                       {"tokens", learned.vocab_size()},
                       {"merges", learned.merges.size()},
                       {"words", learned.words},
                       {"bytes", learned.bytes},
                       {"skipped", skipped},
                       {"seconds", seconds_since(begun)}}
                      .dump());
    return 0;
  }
  print("{}/tokenizer.json: {} tokens, {} merges, from {} and {} different words in {}\n", wanted.out,
        learned.vocab_size(), learned.merges.size(), base::human_bytes(static_cast<double>(learned.bytes)),
        learned.words, base::human_duration(seconds_since(begun)));
  return 0;
}

void check(const Wanted& wanted) {
  if (wanted.on_error != "stop" && wanted.on_error != "skip")
    throw base::ConfigError(
        109, fmt::format("--on-error {}: stop or skip is expected", base::quoted(wanted.on_error)));
  if (wanted.lines.decode && !wanted.ids && !wanted.files.empty())
    throw base::ConfigError(109, "--decode reads ids from standard input and takes no files");
  if (!wanted.train && wanted.lines.tokenizer.empty())
    throw base::ConfigError(
        109,
        "--tokenizer names a tokenizer.json, *.tiktoken, tokenizer.model or tekken.json, or a folder "
        "that holds one");
  if ((wanted.ids || wanted.lines.decode) && wanted.train)
    throw base::ConfigError(109, "--train and --ids are two commands: choose one");
}

}  // namespace

int tokenize_command(Arguments& arguments) {
  Wanted wanted;
  std::string special;
  arguments.rest("FILES", wanted.files,
                 "text, JSONL, CSV, Parquet, Arrow, MDS, also compressed: files, folders, patterns");
  arguments.option("--tokenizer", wanted.lines.tokenizer, "a tokenizer's file, or a folder that holds one");
  arguments.option("--out", wanted.out, "the folder for the token files, or for the new tokenizer");
  arguments.option("--field", wanted.field, "the field or column that holds the text, or tokens");
  arguments.option("--on-error", wanted.on_error,
                   "a document that cannot be used: stop, or skip and count it");
  arguments.flag("--ids", wanted.ids, "read lines from standard input and print their ids, a line each");
  arguments.flag("--decode", wanted.lines.decode, "the way back: lines of ids become lines of text");
  arguments.flag("--no-special", wanted.no_special,
                 "without the tokens that stand around a text or document");
  arguments.flag("--special-as-text", wanted.as_text,
                 "special tokens that are written in a text are text like any other");
  arguments.flag("--train", wanted.train, "learn a byte-level BPE from FILES");
  arguments.option("--vocab-size", wanted.vocab_size,
                   "--train: tokens, those of the 256 bytes and special ones among them");
  arguments.option("--special", special, "--train: special tokens, with commas, before all others");
  arguments.flag("--json", wanted.json,
                 "report as JSON; with --ids, a line is a JSON string and its ids a JSON list");
  arguments.example("lockstep tokenize corpus/*.jsonl --tokenizer llama3/ --out tokens/",
                    "token files to train on; run it again to resume");
  arguments.example("lockstep tokenize 's3://bucket/corpus/*.parquet' --tokenizer llama3/ --out tokens/",
                    "from an object store; gs:// and abfs:// too");
  arguments.example("echo \"Hello world\" | lockstep tokenize --ids --tokenizer llama3/",
                    "the ids of a line");
  arguments.example("echo \"9906 1917\" | lockstep tokenize --decode --tokenizer llama3/",
                    "and the way back");
  arguments.example("lockstep tokenize --train corpus/ --vocab-size 32000 --out mine/", "a new tokenizer");
  if (!arguments.parse()) return 0;
  wanted.lines.encoding = {.add_special = !wanted.no_special, .parse_special = !wanted.as_text};
  wanted.lines.skip_special = wanted.no_special;
  wanted.lines.json = wanted.json;
  for (size_t begin = 0; begin < special.size();) {
    const size_t end = std::min(special.find(',', begin), special.size());
    wanted.special.push_back(special.substr(begin, end - begin));
    begin = end + 1;
  }
  check(wanted);
  if (wanted.train) return learn(wanted);
  if (wanted.ids || wanted.lines.decode) return tokenize_lines(wanted.lines);
  return make_files(wanted);
}

}  // namespace lockstep::cli
