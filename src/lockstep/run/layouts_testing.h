// One family in one layout, trained on ranks that are threads and compared with one rank: what the tests of
// layouts share. Their rows are in layouts_test.cc and strands_layouts_test.cc.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>
#include <tuple>

#include "lockstep/run/loop/trainer.h"
#include "lockstep/run/testing.h"

namespace lockstep::run {

using Words = std::vector<std::string>;

struct Result {
  std::string hash;
  std::vector<double> losses, norms;
  double eval_loss = 0;
  int64_t peak_bytes = 0, planned_bytes = 0;
};

struct Watcher : Observer {
  Result* result;
  void stepped(const StepReport& report) override {
    result->losses.push_back(report.loss);
    result->norms.push_back(report.grad_norm);
  }
};

inline Result train_rank(const Words& words, comm::World& world) {
  Ranks ranks(world);
  Plan plan = make_plan(tiny_recipe(words), {}, for_this(ranks));
  Result result;
  result.planned_bytes = plan.memory.peak_bytes();
  Session session(std::move(plan), &ranks);
  if (!ranks.alone()) session.executor->rehearse();  // as pipelines do on GPUs: it leaves nothing behind
  Watcher watcher;
  watcher.result = &result;
  const Summary summary = train(session, {}, watcher);
  result.hash = summary.params_hash;
  result.eval_loss = summary.eval_loss.value_or(0);
  result.peak_bytes = session.plan.device->peak_allocated_bytes();
  return result;
}

inline std::vector<Result> train_on(int world, const Words& words) {
  std::vector<Result> results(static_cast<size_t>(world));
  on_ranks(world, "shm",
           [&](comm::World& one) { results[static_cast<size_t>(one.rank())] = train_rank(words, one); });
  return results;
}

struct Family {
  const char* name;
  Words recipe;
};
inline void PrintTo(const Family& family, std::ostream* out) { *out << family.name; }

struct Layout {
  int world;
  const char* words;  // with blanks between them
  bool exact;         // same bits as one rank
};
inline void PrintTo(const Layout& layout, std::ostream* out) {
  *out << layout.world << " ranks " << layout.words;
}

// One row of a test: a family in a layout.
using Row = std::tuple<Family, Layout>;

// "gpt2_on_4_pipeline_2_zero_3"
inline std::string name_of(const testing::TestParamInfo<Row>& info) {
  const auto& [family, layout] = info.param;
  std::string words;
  for (std::string_view left = layout.words; !left.empty();) {
    const std::string_view word = left.substr(0, left.find(' '));
    left.remove_prefix(std::min(left.size(), word.size() + 1));
    words += fmt::format("_{}", word.substr(word.find('.') + 1));
  }
  std::replace_if(
      words.begin(), words.end(), [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
  return fmt::format("{}_on_{}{}", family.name, layout.world, words);
}

inline Words with(Words words, const std::string& more) {
  for (size_t begin = 0; begin < more.size();) {
    const size_t end = std::min(more.find(' ', begin), more.size());
    words.push_back(more.substr(begin, end - begin));
    begin = end + 1;
  }
  return words;
}

inline double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  double most = a.size() == b.size() ? 0 : 1;
  for (size_t k = 0; k < std::min(a.size(), b.size()); ++k)
    most = std::max(most, std::abs(a[k] - b[k]) / std::abs(b[k]));
  return most;
}

// Each family is trained on one rank once, whichever of its rows are run.
inline const Result& on_one_rank(const Family& family) {
  static std::map<std::string, Result> known;
  const auto found = known.find(family.name);
  if (found != known.end()) return found->second;
  comm::World world;
  return known.emplace(family.name, train_rank(family.recipe, world)).first->second;
}

inline bool computes(const Words& recipe, const char* format) {
  return std::find(recipe.begin(), recipe.end(), fmt::format("precision.compute={}", format)) != recipe.end();
}

// Heads of 4 and 8 so that all layouts fit; a few steps with an optimizer that shows every gradient.
inline Words layout_recipe(const Words& more) {
  Words words = {"run.steps=4",     "model.layers=4",   "model.hidden=64",   "model.heads=8",
                 "data.seq_len=32", "batch.global=16",  "batch.slices=8",    "batch.strands=4",
                 "optim.warmup=0",  "log.eval_every=0", "log.eval_batches=4"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

class Layouts : public testing::TestWithParam<Row> {};

}  // namespace lockstep::run
