#include "lockstep/plan/choose.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "lockstep/base/beside.h"
#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/terminal/table.h"

namespace lockstep::plan {
namespace {

constexpr double kAboutAsFast = 1.02;
constexpr size_t kShown = 5, kReasons = 4, kWholeNames = 200;
// Thousands of ranks can be distributed in thousands of ways, and those that cut the model most have the
// longest lists.
constexpr int64_t kWorkOfARefusal = 1000;
constexpr size_t kBeside = 8;
constexpr double kFarTooMuch = 1.1;  // times what there is
constexpr size_t kChecked = 32;      // of those that were not compiled, when one of them is to be named
constexpr const char* kLessOfAStep = "use more ranks, more batch.slices or shorter sequences";

// Cheap recomputation is not worth a word.
bool recomputes_blocks(const std::string& recompute) {
  return recompute != "none" && recompute != "auto" && recompute != "cheap";
}

// The sentence becomes a part of one that has a number of its own.
std::string without_code(const base::ConfigError& error) {
  const std::string text = error.what();
  return text.substr(0, text.rfind(" ["));
}

// How hard a layout is to understand, and what it costs in exactness.
int burden(const Candidate& c) {
  const Layout& l = c.layout;
  int axes = 0;
  for (const int size : {l.data, l.tensor, l.context, l.pipeline}) axes += size > 1 ? 1 : 0;
  return axes + (l.exact() ? 0 : 2) + (l.zero > 0 ? 1 : 0) + (recomputes_blocks(c.recompute) ? 1 : 0) +
         (l.schedule == "1f1b" ? 0 : 1);
}

// One split in one form: its stages of sharding and recomputations are tried in turn.
struct Job {
  Layout layout;
  std::vector<Trial> trials = {};
  int64_t work = 0;
  bool fits = false;
};

int cuts_of(const Layout& l) { return l.tensor * l.context * l.pipeline; }

class Chooser {
 public:
  Chooser(const Question& question, const Compile& compile) : question_(question), compile_(compile) {}

  // Those that cut the model least come first; as many at a time as are tried beside each other, whatever the
  // number of processors, so that it does not decide what goes unseen.
  Choice run() {
    std::vector<Job> jobs = all_jobs();
    for (size_t first = 0; first < jobs.size();) {
      if (is_enough(jobs[first].layout)) {
        leave_out(jobs, first);
        break;
      }
      const size_t count = tried_together(jobs, first);
      const auto work = [&](size_t k) { try_memory(jobs[first + k]); };
      if (question_.beside) {
        base::for_each_beside(count, work);
      } else {
        for (size_t k = 0; k < count; ++k) work(k);
      }
      for (size_t k = first; k < first + count; ++k) {
        work_ += jobs[k].work;
        if (jobs[k].fits && fitting_cuts_ == 0) fitting_cuts_ = cuts_of(jobs[k].layout);
        for (Trial& trial : jobs[k].trials) trials_.push_back(std::move(trial));
      }
      first += count;
    }
    return decide();
  }

 private:
  // Where those that cut the model further may not be wanted, only those that cut it as much.
  size_t tried_together(const std::vector<Job>& jobs, size_t first) const {
    size_t count = std::min(kBeside, jobs.size() - first);
    while (question_.simple && cuts_of(jobs[first + count - 1].layout) > cuts_of(jobs[first].layout)) --count;
    return count;
  }

  bool is_enough(const Layout& next) const {
    if (question_.simple && fitting_cuts_ > 0 && cuts_of(next) > fitting_cuts_) return true;
    return work_ >= (fitting_cuts_ > 0 ? question_.work : 4 * question_.work);
  }

  // Counted as splits.
  void leave_out(const std::vector<Job>& jobs, size_t first) {
    for (size_t k = first; k < jobs.size(); ++k) {
      Layout split = jobs[k].layout, before = k > 0 ? jobs[k - 1].layout : Layout{};
      for (Layout* one : {&split, &before}) one->form = "ring", one->schedule = "1f1b", one->chunks = 1;
      unseen_ += k == 0 || !(split == before) ? 1 : 0;
    }
  }

  std::vector<Job> all_jobs() {
    std::vector<Layout> splits = all_splits();
    std::stable_sort(splits.begin(), splits.end(),
                     [&](const Layout& a, const Layout& b) { return cuts_of(a) < cuts_of(b); });
    std::vector<Job> jobs;
    for (const Layout& split : splits) add_forms(split, jobs);
    return jobs;
  }

  std::vector<Layout> all_splits() const {
    std::vector<Layout> splits;
    for (int tensor = 1; tensor <= question_.ranks; ++tensor) {
      for (int context = 1; tensor * context <= question_.ranks; ++context) {
        for (int pipeline = 1; tensor * context * pipeline <= question_.ranks; ++pipeline) {
          if (question_.ranks % (tensor * context * pipeline) != 0) continue;
          if (question_.tensor.value_or(tensor) != tensor || question_.context.value_or(context) != context ||
              question_.pipeline.value_or(pipeline) != pipeline) {
            continue;
          }
          splits.push_back({.data = question_.ranks / (tensor * context * pipeline),
                            .tensor = tensor,
                            .context = context,
                            .pipeline = pipeline});
        }
      }
    }
    return splits;
  }

  // The ways to do the same split.
  void add_forms(Layout layout, std::vector<Job>& jobs) {
    if (layout.tensor > question_.machine.ranks_per_node) {
      trials_.push_back({.candidate = {layout, question_.recompute},
                         .refused = fmt::format("tensor ranks would not fit inside a node of {}",
                                                question_.machine.ranks_per_node)});
      return;
    }
    std::vector<std::string> forms{layout.form}, schedules{layout.schedule};
    if (layout.context > 1 && !question_.simple) forms = {"ring", "heads"};
    if (layout.pipeline > 1 && !question_.simple)
      schedules = {"1f1b", "zero-bubble", "interleaved"};  // gpipe keeps more than 1f1b
    if (layout.context > 1 && question_.form) forms = {*question_.form};
    if (layout.pipeline > 1 && question_.schedule) schedules = {*question_.schedule};
    for (const std::string& form : forms) {
      for (const std::string& schedule : schedules) {
        layout.form = form;
        layout.schedule = schedule;
        layout.chunks = schedule == "interleaved" ? question_.chunks.value_or(2) : 1;
        jobs.push_back({.layout = layout});
      }
    }
  }

  // Every stage of sharding, for it moves more bytes but shares out the update too; recomputation only where
  // nothing fits without it. The stage that needs least comes first: where that is far too much, the others
  // are not tried.
  void try_memory(Job& job) const {
    Layout layout = job.layout;
    std::vector<std::string> recomputes{question_.recompute};
    if (!recomputes_blocks(question_.recompute)) recomputes.push_back("full");
    // Who names a shard size wants something shared out.
    const int least = layout.data > 1 && question_.shard.value_or(1) > 1 ? 1 : 0;
    for (const std::string& recompute : recomputes) {
      bool possible = false;
      const auto first = static_cast<ptrdiff_t>(job.trials.size());
      for (int zero = layout.data > 1 ? 3 : 0; zero >= least; --zero) {
        if (layout.data > 1 && question_.zero.value_or(zero) != zero) continue;
        layout.zero = zero;
        const Trial trial = try_split(layout, recompute, job.work);
        job.trials.insert(job.trials.begin() + first, trial);  // told in the order of stages
        if (!trial.refused.empty()) continue;
        possible = true;
        job.fits |= trial.fits;
        if (static_cast<double>(trial.peak_bytes) >
            kFarTooMuch * static_cast<double>(question_.available_bytes))
          break;
      }
      if (job.fits || !possible) return;
    }
  }

  // Splitting norms over tokens saves memory for the same traffic, where the sizes allow it.
  Trial try_split(Layout layout, const std::string& recompute, int64_t& work) const {
    layout.sequence = layout.tensor > 1 && question_.sequence.value_or(true);
    Trial trial = try_one({layout, recompute}, work);
    if (trial.refused.empty() || !layout.sequence || question_.sequence) return trial;
    layout.sequence = false;
    return try_one({layout, recompute}, work);
  }

  Trial try_one(const Candidate& candidate, int64_t& work) const {
    Trial trial{.candidate = candidate};
    if (question_.least_bytes) {
      trial.peak_bytes = question_.least_bytes(candidate);
      trial.at_least = trial.peak_bytes > question_.available_bytes;
      if (trial.at_least) return trial;
    }
    try {
      const Compiled compiled = compile_(candidate);
      for (const program::Program* program : compiled.world.programs)
        work += static_cast<int64_t>(program->instructions.size());
      trial.peak_bytes = compiled.peak_bytes;
      trial.fits = compiled.peak_bytes <= question_.available_bytes;
      if (!trial.fits) return trial;
      const Walk walk = simulate(compiled.world, price_on(question_.machine, compiled.world),
                                 {.apart = apart_on(question_.machine, compiled.world)});
      LS_ASSERT(walk.problems.empty(), candidate.words() + ": " + base::join(walk.problems, "; "));
      trial.step_seconds = walk.step_seconds;
      trial.bubble = walk.bubble;
    } catch (const base::ConfigError& error) {
      trial.refused = without_code(error);
      work += kWorkOfARefusal;
    }
    return trial;
  }

  Choice decide() {
    const auto rank = [](const Trial& t) { return t.fits ? 0 : !t.refused.empty() ? 3 : t.at_least ? 2 : 1; };
    std::stable_sort(trials_.begin(), trials_.end(), [&](const Trial& a, const Trial& b) {
      if (rank(a) != rank(b)) return rank(a) < rank(b);
      return a.fits ? a.step_seconds < b.step_seconds : a.peak_bytes < b.peak_bytes;
    });
    if (trials_.empty() || !trials_.front().fits) refuse();
    // Of those about as fast as the fastest, the simplest.
    size_t best = 0;
    for (size_t k = 1; k < trials_.size() && trials_[k].fits; ++k) {
      if (trials_[k].step_seconds > trials_[0].step_seconds * kAboutAsFast) break;
      if (burden(trials_[k].candidate) < burden(trials_[best].candidate)) best = k;
    }
    Choice choice{.best = trials_[best].candidate, .available_bytes = question_.available_bytes};
    std::rotate(trials_.begin(), trials_.begin() + static_cast<ptrdiff_t>(best),
                trials_.begin() + static_cast<ptrdiff_t>(best) + 1);
    choice.trials = std::move(trials_);
    choice.unseen = unseen_;
    return choice;
  }

  // What was not compiled was not checked either: of those that need least, the first that is possible.
  std::optional<Trial> nearest() {
    size_t checked = 0;
    for (Trial& trial : trials_) {
      if (!trial.refused.empty()) continue;
      if (!trial.at_least) return trial;
      if (checked++ == kChecked) break;
      Trial form = trial;
      check(form);
      if (!form.refused.empty() && form.candidate.layout.sequence && !question_.sequence) {
        form.candidate.layout.sequence = false;
        check(form);
      }
      if (form.refused.empty()) return form;
      trial = form;
    }
    return std::nullopt;
  }

  void check(Trial& trial) const {
    trial.refused.clear();
    try {
      static_cast<void>(compile_(trial.candidate));
    } catch (const base::ConfigError& error) {
      trial.refused = without_code(error);
    }
  }

  // What speaks against the simplest layout is the recipe's own fault, where anything is.
  std::string why_impossible() const {
    const Trial* simplest = nullptr;
    for (const Trial& trial : trials_) {
      if (trial.refused.empty()) continue;  // one of very many that were not looked at
      if (simplest == nullptr || burden(trial.candidate) < burden(simplest->candidate)) simplest = &trial;
    }
    return simplest == nullptr ? "no factorization has the sizes set in the recipe"
                               : "with " + simplest->candidate.words() + ": " + simplest->refused;
  }

  // Where every layout is refused with the same words, layouts have nothing to do with it, and compiling any
  // of them says so with a number of its own.
  const Trial* fault_of_the_recipe() const {
    const Trial* first = nullptr;
    for (const Trial& trial : trials_) {
      if (trial.candidate.layout.tensor > question_.machine.ranks_per_node) continue;  // was not compiled
      if (first == nullptr) first = &trial;
      if (trial.refused != first->refused) return nullptr;
    }
    return first;
  }

  // Where the weights and moments alone are too much, what a step works on does not matter.
  std::string less_state() const {
    std::vector<std::string> ways{"more ranks"};
    ways.insert(ways.end(), question_.less_state.begin(), question_.less_state.end());
    return "use " + base::join(ways, " or ");
  }

  [[noreturn]] void refuse() {
    const std::optional<Trial> found = nearest();
    if (!found) {
      if (const Trial* any = fault_of_the_recipe()) static_cast<void>(compile_(any->candidate));
      throw base::ConfigError(183, fmt::format("parallel.auto finds no layout for {} ranks: {}",
                                               question_.ranks, why_impossible()));
    }
    throw NothingFits(
        fmt::format("parallel.auto finds no layout of {} ranks that fits: the smallest{}, {}, needs {}{} "
                    "of the {} that a rank has; {}",
                    question_.ranks, unseen_ > 0 ? " tried" : "", found->candidate.words(),
                    found->at_least ? "at least " : "",
                    base::human_bytes(static_cast<double>(found->peak_bytes)),
                    base::human_bytes(static_cast<double>(question_.available_bytes)),
                    found->at_least ? less_state() : kLessOfAStep),
        found->candidate);
  }

  const Question& question_;
  const Compile& compile_;
  std::vector<Trial> trials_;
  int64_t work_ = 0;
  int fitting_cuts_ = 0;  // of the first that fits
  size_t unseen_ = 0;
};

}  // namespace

std::string Candidate::words() const {
  return layout.words() + (!recomputes_blocks(recompute) ? "" : ", recompute " + recompute);
}

std::vector<std::string> Candidate::overrides() const {
  std::vector<std::string> list = layout.overrides();
  list.push_back("memory.recompute=" + recompute);
  return list;
}

std::string Choice::why() const {
  terminal::Table table({"layout", "memory", "step", "bubble", ""});
  for (const size_t column : {1, 2, 3}) table.align_right(column);
  size_t shown = 0, fitting = 0, too_large = 0;
  std::map<std::string, std::pair<size_t, std::string>> reasons;  // and how many, and one of them
  for (const Trial& trial : trials) {
    fitting += trial.fits ? 1 : 0;
    too_large += !trial.fits && trial.refused.empty() ? 1 : 0;
    if (!trial.refused.empty()) {
      auto& [count, words] = reasons[trial.refused];
      if (count++ == 0) words = trial.candidate.words();
    }
    if (!trial.fits || shown++ >= kShown) continue;
    table.add({trial.candidate.words(), base::human_bytes(static_cast<double>(trial.peak_bytes)),
               base::human_duration(trial.step_seconds), fmt::format("{:.0f} %", trial.bubble * 100),
               shown == 1 ? "chosen" : ""});
  }
  std::string text = fmt::format(
      "parallel.auto: {} of {} layouts fit in {}; estimated to be fastest:\n{}", fitting, trials.size(),
      base::human_bytes(static_cast<double>(available_bytes)), table.to_text(kWholeNames));
  if (too_large > 0) text += fmt::format("{} need more memory\n", too_large);
  if (unseen > 0) text += fmt::format("{} that split the model further were not tried\n", unseen);
  size_t told = 0;
  for (const auto& [reason, whom] : reasons) {
    if (told++ == kReasons) break;
    text += fmt::format("not {}{}: {}\n", whom.second,
                        whom.first > 1 ? fmt::format(" and {} more", whom.first - 1) : "", reason);
  }
  return text;
}

Choice choose(const Question& question, const Compile& compile) { return Chooser(question, compile).run(); }

}  // namespace lockstep::plan
