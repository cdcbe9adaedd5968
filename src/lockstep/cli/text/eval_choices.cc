// lockstep eval --choices: log-likelihoods of choices and completions, and how often the likeliest is right.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/cli/print.h"
#include "lockstep/cli/text/eval_modes.h"
#include "lockstep/cli/text/likelihoods.h"
#include "lockstep/text/utf8.h"
#include "lockstep/training/stop_signal.h"

namespace lockstep::cli {

namespace {

// A share of right answers and its standard error, as the harness has it.
struct Share {
  int64_t right = 0, all = 0;
  void add(bool is_right) { right += is_right ? 1 : 0, ++all; }
  double value() const { return all > 0 ? static_cast<double>(right) / static_cast<double>(all) : 0; }
  double error() const {
    return all > 1 ? std::sqrt(value() * (1 - value()) / static_cast<double>(all - 1)) : 0;
  }
};

// As lm-evaluation-harness measures a choice: Python's len().
double characters(const std::string& text) {
  return static_cast<double>(
      std::count_if(text.begin(), text.end(), [](char byte) { return !text::continues_char(byte); }));
}

class Results {
 public:
  explicit Results(bool json) : json_(json) {}
  void add(const LikelihoodLine& line, const std::vector<run::Score>& scores) {
    for (const run::Score& score : scores) finite_ = finite_ && std::isfinite(score.logprob);
    line.completion() ? add_completion(line, scores[0]) : add_choices(line, scores);
  }
  bool finite() const { return finite_; }
  void print_summary(const std::string& model) const;

 private:
  void add_completion(const LikelihoodLine& line, const run::Score& score) {
    greedy_.add(score.greedy);
    logprob_ += score.logprob;
    if (json_) {
      print("{}\n", nlohmann::json{{"line", line.number},
                                   {"logprob", score.logprob},
                                   {"tokens", score.tokens},
                                   {"greedy", score.greedy}}
                        .dump());
    }
  }
  void add_choices(const LikelihoodLine& line, const std::vector<run::Score>& scores) {
    std::vector<double> plain, by_length;
    for (size_t i = 0; i < scores.size(); ++i) {
      plain.push_back(scores[i].logprob);
      by_length.push_back(scores[i].logprob / characters(line.choices[i]));
    }
    const auto best = [](const std::vector<double>& values) {
      return std::max_element(values.begin(), values.end()) - values.begin();
    };
    acc_.add(best(plain) == line.answer);
    norm_.add(best(by_length) == line.answer);
    if (json_) {
      print("{}\n", nlohmann::json{{"line", line.number},
                                   {"answer", line.answer},
                                   {"logprobs", plain},
                                   {"prediction", best(plain)},
                                   {"prediction_norm", best(by_length)},
                                   {"acc", best(plain) == line.answer ? 1 : 0},
                                   {"acc_norm", best(by_length) == line.answer ? 1 : 0}}
                        .dump());
    }
  }

  bool json_, finite_ = true;
  Share acc_, norm_, greedy_;
  double logprob_ = 0;
};

void Results::print_summary(const std::string& model) const {
  nlohmann::json summary{{"model", model}, {"lines", acc_.all + greedy_.all}};
  if (acc_.all > 0) {
    summary.update({{"questions", acc_.all},
                    {"acc", acc_.value()},
                    {"acc_stderr", acc_.error()},
                    {"acc_norm", norm_.value()},
                    {"acc_norm_stderr", norm_.error()}});
    if (!json_)
      print("{} questions: acc {:.4f} (standard error {:.4f}), acc_norm {:.4f} ({:.4f})\n", acc_.all,
            acc_.value(), acc_.error(), norm_.value(), norm_.error());
  }
  if (greedy_.all > 0) {
    const double mean = logprob_ / static_cast<double>(greedy_.all);
    summary.update({{"completions", greedy_.all}, {"logprob", mean}, {"greedy", greedy_.value()}});
    if (!json_)
      print("{} completions: mean log-likelihood {:.4f}, greedy {:.4f}\n", greedy_.all, mean,
            greedy_.value());
  }
  if (json_) print("{}\n", summary.dump());
}

struct Questions {
  std::vector<LikelihoodLine> lines;
  std::vector<run::ScoreItem> items;  // of all choices, one line's after the other's
};

// Lines in tokens; those that cannot be used are left out or end the command.
Questions encode(const ChoicesOptions& o, std::vector<LikelihoodLine> lines, const ModelText& text,
                 int64_t context, BadLines& bad) {
  Questions questions;
  for (LikelihoodLine& line : lines) {
    const std::string where = fmt::format("{} line {}", o.file, line.number);
    const PairOptions pair{line.completion() ? "" : o.delimiter, o.add_bos};
    std::vector<run::ScoreItem> items;
    try {
      for (const std::string& choice : line.choices) {
        items.push_back(score_item(text, line.context, choice, pair, context, where));
        text.check_tokens(items.back().tokens, where);
      }
    } catch (const base::ConfigError& error) {
      bad.tell(error.what());
      continue;
    }
    for (run::ScoreItem& item : items) questions.items.push_back(std::move(item));
    questions.lines.push_back(std::move(line));
  }
  return questions;
}

}  // namespace

int evaluate_choices(const std::string& folder, const std::vector<std::string>& words,
                     const ChoicesOptions& o) {
  BadLines bad(o.skips);
  std::vector<LikelihoodLine> lines =
      read_likelihoods(o.file, [&](const std::string& sentence) { bad.tell(sentence); });
  const OpenedModel opened = open_for_decoding(folder, words);
  const ModelText text(opened.session->plan, opened.model);
  const Questions questions = encode(o, std::move(lines), text, opened.session->plan.model->context, bad);
  if (questions.lines.empty()) throw base::ConfigError(198, o.file + " has no line that can be scored");
  int64_t longest = 1;
  for (const run::ScoreItem& item : questions.items)
    longest = std::max(longest, static_cast<int64_t>(item.tokens.size()) - 1);
  run::Scorer scorer(*opened.session, longest);
  Results results(o.json);
  training::StopSignal signal;
  signal.arm();
  size_t line = 0;
  std::vector<run::Score> scores;
  const bool all = scorer.run(
      questions.items,
      [&](size_t, const run::Score& score) {
        scores.push_back(score);
        if (scores.size() < questions.lines[line].choices.size()) return;
        results.add(questions.lines[line++], scores);
        scores.clear();
      },
      &signal.value());
  bad.report();
  if (!all) remark("interrupted after {} of {} lines\n", line, questions.lines.size());
  results.print_summary(opened.model.folder);
  return judge_finite(results.finite(), opened.model.folder);
}

}  // namespace lockstep::cli
