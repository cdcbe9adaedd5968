// lockstep eval --by-document: loss, perplexity and bits per byte of each document, in overlapping windows.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/cli/print.h"
#include "lockstep/cli/text/eval_modes.h"
#include "lockstep/cli/text/model_text.h"
#include "lockstep/data/corpus/corpus.h"
#include "lockstep/data/formats/files.h"
#include "lockstep/run/tools/score.h"
#include "lockstep/training/stop_signal.h"

namespace lockstep::cli {

namespace {

struct Sums {
  int64_t documents = 0, tokens = 0, bytes = 0;
  double logprob = 0;
  double loss() const { return tokens > 0 ? -logprob / static_cast<double>(tokens) : 0; }
  double bits_per_byte() const {
    return bytes > 0 ? -logprob / std::log(2.0) / static_cast<double>(bytes) : 0;
  }
  void add(const Sums& other) {
    documents += other.documents;
    tokens += other.tokens;
    bytes += other.bytes;
    logprob += other.logprob;
  }
  nlohmann::json json() const {
    return {{"tokens", tokens},   {"bytes", bytes},
            {"loss", loss()},     {"perplexity", std::exp(loss())},
            {"logprob", logprob}, {"bits_per_byte", bits_per_byte()}};
  }
};

constexpr const char* kTableRow = "{:>10} {:>10} {:>10.4f} {:>12.4f} {:>10.4f}\n";

// Documents whose windows wait to be scored together.
class Documents {
 public:
  Documents(run::Session& session, const DocumentsOptions& o, int64_t window)
      : o_(o), window_(window), stride_(o.stride), scorer_(session, window) {
    if (!o_.json)
      print("{:>10} {:>10} {:>10} {:>12} {:>10}\n", "document", "tokens", "loss", "perplexity", "bits/byte");
    signal_.arm();
  }

  bool add(const std::vector<int32_t>& tokens, size_t bytes, const std::string& file);
  bool score();  // false: interrupted
  const Sums& total() const { return total_; }

 private:
  struct Waiting {
    std::string file;
    Sums sums;
  };
  void print_row(const Waiting& document);

  DocumentsOptions o_;
  int64_t window_, stride_;
  run::Scorer scorer_;
  training::StopSignal signal_;
  std::vector<Waiting> waiting_;
  std::vector<run::ScoreItem> windows_;
  std::vector<size_t> owners_;  // of windows_: which of waiting_
  int64_t tokens_ = 0;          // of windows_
  Sums total_;
};

// Every token but the first is scored once, in the first window that holds it. False: interrupted.
bool Documents::add(const std::vector<int32_t>& tokens, size_t bytes, const std::string& file) {
  constexpr int64_t kTogether = 1 << 14;
  const auto length = static_cast<int64_t>(tokens.size());
  waiting_.push_back({file, {.documents = 1, .bytes = static_cast<int64_t>(bytes)}});
  for (int64_t begin = 0, scored = 1; scored < length; begin += stride_) {
    const int64_t end = std::min(begin + window_, length);
    windows_.push_back({{tokens.begin() + begin, tokens.begin() + end}, scored - begin});
    owners_.push_back(waiting_.size() - 1);
    tokens_ += end - begin;
    scored = end;
  }
  return tokens_ < kTogether || score();
}

bool Documents::score() {
  const auto add_score = [&](size_t window, const run::Score& score) {
    Sums& sums = waiting_[owners_[window]].sums;
    sums.tokens += score.tokens;
    sums.logprob += score.logprob;
  };
  if (!scorer_.run(windows_, add_score, &signal_.value())) return false;
  for (const Waiting& document : waiting_) print_row(document);
  waiting_.clear();
  windows_.clear();
  owners_.clear();
  tokens_ = 0;
  return true;
}

void Documents::print_row(const Waiting& document) {
  total_.add(document.sums);
  const Sums& sums = document.sums;
  if (o_.json) {
    nlohmann::json line = sums.json();
    line["document"] = total_.documents;
    line["file"] = document.file;
    print("{}\n", line.dump());
    return;
  }
  print(kTableRow, total_.documents, sums.tokens, sums.loss(), std::exp(sums.loss()), sums.bits_per_byte());
}

// False: interrupted.
bool read_documents(const std::string& file, const std::string& field, const ModelText& text, BadLines& bad,
                    Documents& documents) {
  const auto reader = data::open_corpus(file, {.field = field});
  std::string whole;  // a document may come in parts
  bool more = true;
  const auto use = [&](const data::Document& document) {
    if (!more) return;
    if (document.begins) whole.clear();
    whole += document.text;
    if (!document.ends) return;
    const std::vector<int32_t> tokens = text.encode(whole);
    text.check_tokens(tokens, file);
    more = documents.add(tokens, whole.size(), file);
  };
  const auto refuse = [&](const data::BadDocument& document) { bad.tell(document.sentence); };
  while (const auto part = more ? reader->next_part() : std::nullopt)
    reader->each_document(*part, use, refuse);
  return more;
}

// As long as the model was trained on, or as the user says, or as the model can read.
int64_t window_of(const recipe::Recipe& recipe, const FolderModel& model, bool said) {
  constexpr int64_t kLongest = 8192;
  const int64_t context = recipe.model.context.value;
  if (said || model.trained_here) return std::min(model.seq_len, context);
  return std::min(context, kLongest);
}

}  // namespace

int evaluate_documents(const std::string& folder, const std::vector<std::string>& words,
                       const DocumentsOptions& options) {
  OpenedModel opened = open_for_decoding(folder, words);
  const recipe::Recipe& recipe = opened.session->plan.recipe();
  if (recipe.data.path.empty())
    throw base::ConfigError(
        109, "--by-document needs files: lockstep eval DIR data.path=documents.jsonl --by-document");
  const int64_t window = window_of(recipe, opened.model,
                                   opened.session->plan.resolved.origin.at("data.seq_len") == "command line");
  DocumentsOptions o = options;
  if (o.stride == 0) o.stride = std::max<int64_t>(1, window / 2);
  if (o.stride < 1 || o.stride >= window) {
    throw base::ConfigError(109,
                            fmt::format("--stride {} must be at least 1 and below the window of {} tokens "
                                        "(data.seq_len, or the model's context)",
                                        o.stride, window));
  }
  const ModelText text(opened.session->plan, opened.model);
  const std::vector<std::string> files =
      data::find_files({.key = "data.path", .path = recipe.data.path}).files;
  BadLines bad(o.skips);
  Documents documents(*opened.session, o, window);
  bool complete = true;
  for (const std::string& file : files)
    complete = complete && read_documents(file, recipe.data.field, text, bad, documents);
  complete = complete && documents.score();
  bad.report();
  const Sums& total = documents.total();
  if (!complete) remark("interrupted after {} documents\n", total.documents);
  if (o.json) {
    nlohmann::json line = total.json();
    line.update({{"model", opened.model.folder},
                 {"documents", total.documents},
                 {"window", window},
                 {"stride", o.stride}});
    print("{}\n", line.dump());
  } else {
    print(
        "{} documents, {} tokens: loss {:.6f}, perplexity {:.4f}, {:.4f} bits per byte (windows of {} "
        "tokens, "
        "stride {})\n",
        total.documents, total.tokens, total.loss(), std::exp(total.loss()), total.bits_per_byte(), window,
        o.stride);
  }
  return judge_finite(std::isfinite(total.logprob), opened.model.folder);
}

}  // namespace lockstep::cli
