#include "lockstep/verify/verify.h"

#include <fmt/format.h>

#include <atomic>
#include <cmath>
#include <filesystem>
#include <future>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/text.h"
#include "lockstep/checkpoint/step_folders.h"
#include "lockstep/data/dataset.h"

namespace lockstep::verify {
namespace {

namespace fs = std::filesystem;

constexpr const char* kReference = "one-rank";
constexpr int64_t kEvaluated = 64;   // documents that are compared packed and alone
constexpr double kSumsApart = 1e-9;  // losses of tokens have the same bits; their sum may differ in its last

std::string size_text(double value) {
  return std::isfinite(value) ? fmt::format("{:.1e}", value) : "not finite";
}

class Verifier {
 public:
  Verifier(const Options& options, const Train& train) : options_(options), train_(train) {}

  Report run() {
    int64_t most = 1, pieces = 1;
    for (const Layout& layout : options_.layouts) {
      most = std::max(most, layout.ranks());
      pieces = std::max(pieces, int64_t{1} * layout.pipeline * layout.chunks);
    }
    report_.small = small_recipe(options_.resolved, options_.steps, most, pieces);
    blocks_ = blocks_of(report_.small.recipe);
    recipe_file_ = options_.folder + "/recipe.toml";
    base::write_file_durable(recipe_file_, recipe::write_toml(report_.small.recipe));
    if (!options_.against.empty()) check_golden();
    report_.rows.push_back(finished([&] { return reference_row(); }).value_or(Row()));
    report_.holds = report_.rows[0].holds;
    report_.stopped = stopped_;
    if (!report_.rows[0].difference) return std::move(report_);  // nothing to compare with
    if (!options_.against.empty()) compare_with_golden();
    for (std::optional<Row>& row : layout_rows()) {
      if (!row) continue;
      report_.holds = report_.holds && (row->holds || (row->refused && !options_.named));
      report_.rows.push_back(std::move(*row));
    }
    // Other data is no documents without packing, but one stream.
    if (report_.small.recipe.data.pack && report_.small.recipe.data.kind == "chat" && !stopped_) {
      if (std::optional<Row> row = finished([&] { return packed_row(); })) {
        report_.holds = report_.holds && row->holds;
        report_.rows.push_back(std::move(*row));
      }
    }
    report_.stopped = stopped_;
    report_.holds = report_.holds && !report_.stopped;
    return std::move(report_);
  }

 private:
  struct Stopped {};

  // Nothing once the user has stopped it.
  template <class MakeRow>
  std::optional<Row> finished(MakeRow make) {
    try {
      return make();
    } catch (const Stopped&) {
      stopped_ = true;
      return std::nullopt;
    }
  }

  // Some at once: they have nothing to do with each other. One that broke has another try with the machine to
  // itself, since memory or time may not have sufficed for all; that it broke is told.
  std::vector<std::optional<Row>> layout_rows() {
    std::vector<std::optional<Row>> rows(options_.layouts.size());
    std::atomic<size_t> next{0};
    const auto work = [&] {
      for (size_t k = next++; k < rows.size() && !stopped_; k = next++) {
        if (options_.layouts[k] != Layout())
          rows[k] = finished([&] { return layout_row(options_.layouts[k]); });
      }
    };
    std::vector<std::future<void>> others;
    for (int64_t k = 1; k < options_.jobs; ++k) others.push_back(std::async(std::launch::async, work));
    work();
    for (std::future<void>& other : others) other.get();
    for (size_t k = 0; k < rows.size() && options_.jobs > 1; ++k) {
      if (!rows[k] || !rows[k]->broke || stopped_) continue;
      const std::string before = rows[k]->note;
      rows[k] = finished([&] { return layout_row(options_.layouts[k]); });
      if (!rows[k]) break;
      std::string& note = rows[k]->note;
      note += (note.empty() ? "while other runs were active: " : "; while other runs were active: ") + before;
    }
    return rows;
  }

  // Trains into a folder of its own; its run, or nothing with the reason in the row.
  std::optional<Run> trained(Row& row, const std::string& name, const std::string& title,
                             const std::string& resume, const std::vector<std::string>& more = {}) {
    Job job{.recipe = recipe_file_,
            .overrides = row.layout.overrides(),
            .ranks = row.layout.ranks(),
            .folder = options_.folder + "/" + name,
            .resume = resume,
            .title = title};
    job.overrides.insert(job.overrides.end(), more.begin(), more.end());
    const Ended ended = train_(job);
    if (ended.how == Ended::How::done) return read_run(job.folder);
    if (ended.how == Ended::How::stopped) throw Stopped();
    row.refused = ended.how == Ended::How::refused;
    row.broke = !row.refused;
    row.note = row.refused ? "refused: " + ended.why : title + " failed: " + ended.why;
    return std::nullopt;
  }

  std::string middle_of(const Run& run) const {
    return checkpoint::step_folder(run.folder, options_.steps / 2);
  }

  Row reference_row() {
    Row row;
    const std::optional<Run> run = trained(row, kReference, "one rank", "");
    if (!run) return row;
    reference_ = *run;
    resolve_precision(reference_.folder);
    row.difference = Difference{.same_bits = true};
    row.memory_gib = run->memory_gib;
    row.holds = check_again(row, kReference, reference_, reference_);
    return row;
  }

  Row layout_row(const Layout& layout) {
    Row row{.layout = layout};
    const std::string words = layout.words();
    const std::optional<Run> run = trained(row, words, words, "");
    if (!run) return row;
    row.memory_gib = run->memory_gib;
    const Tolerance tolerance = exact(layout) ? Tolerance{} : report_.tolerance;
    row.difference = compare(reference_, *run, blocks_, report_.small.recipe, tolerance);
    row.holds = row.difference->within(tolerance);
    if (!row.holds) {
      row.note = explain(*row.difference);
      return row;
    }
    // What has the bits of one rank must go on from one rank's checkpoint, too.
    row.holds = check_again(row, words, *run, exact(layout) ? reference_ : *run);
    return row;
  }

  // The same documents, packed and each in a sample of its own, have the same loss: documents do not see each
  // other. Nothing is trained: a rate that moves no weight, and an evaluation.
  Row packed_row() {
    Row row{.layout = {}, .title = "packed documents"};
    recipe::Recipe alone = report_.small.recipe;
    alone.data.pack = false;
    const std::unique_ptr<data::Dataset> dataset = data::open_dataset(alone);
    const int64_t documents = dataset->samples(data::Split::train) + dataset->samples(data::Split::eval);
    const double share = std::min(0.5, kEvaluated / static_cast<double>(documents));
    std::vector<double> losses;
    for (const char* pack : {"true", "false"}) {
      const std::string name = fmt::format("pack={}", pack);
      const std::optional<Run> run =
          trained(row, name, name, "",
                  {fmt::format("data.pack={}", pack), "run.steps=1", "optim.lr=1e-30",
                   "data.eval_path=", fmt::format("data.eval_fraction={}", share),
                   fmt::format("log.eval_batches={}", kEvaluated)});
      if (!run) return row;
      row.memory_gib = std::max(row.memory_gib, run->memory_gib);
      losses.push_back(eval_loss_of(run->folder));
    }
    const double apart = std::abs(losses[0] - losses[1]) / std::abs(losses[1]);
    row.difference = Difference{.same_bits = losses[0] == losses[1], .loss = apart};
    row.holds = apart <= kSumsApart;
    if (!row.holds)
      row.note =
          fmt::format("packed documents have another loss than alone: {} and {}", losses[0], losses[1]);
    return row;
  }

  // The last one that a run has written; not a number where it has none.
  static double eval_loss_of(const std::string& folder) {
    double loss = std::nan("");
    for (const std::string& line : base::split_lines(base::read_file(folder + "/metrics.jsonl"))) {
      const nlohmann::json row = nlohmann::json::parse(line, nullptr, false);
      if (row.is_object() && row.contains("eval_loss") && row["eval_loss"].is_number())
        loss = row["eval_loss"];
    }
    return loss;
  }

  // Whether it must have the bits of one rank; run.exact = false lets data ranks add up in another order.
  bool exact(const Layout& layout) const {
    const recipe::Recipe& small = report_.small.recipe;
    const bool tensor = layout.tensor == 1 || small.batch.product_strands > 1;
    const bool context = layout.context == 1 || small.batch.sequence_strands > 1;
    return tensor && context && (layout.data == 1 || small.run.exact);
  }

  // A second run, and one from the middle of `source`, which ends as `run` did.
  bool check_again(Row& row, const std::string& name, const Run& run, const Run& source) {
    const std::optional<Run> again = trained(row, name + ",again", name + ", again", "");
    if (!again) return false;
    row.repeats = compare(run, *again, blocks_, report_.small.recipe, {}).same_bits;
    fs::remove_all(again->folder);
    if (options_.steps >= 2) {
      const std::optional<Run> late =
          trained(row, name + ",resumed", name + ", from the middle", middle_of(source));
      if (!late) return false;
      row.resumes = ends_alike(run, *late);
      fs::remove_all(late->folder);
    }
    if (!*row.repeats) row.note = "a second run of the same layout has different bits";
    if (row.resumes && !*row.resumes)
      row.note += std::string(row.note.empty() ? "" : "; ") + "the resumed run has different bits";
    return *row.repeats && row.resumes.value_or(true);
  }

  bool ends_alike(const Run& run, const Run& late) const {
    const size_t behind = run.steps.size() - late.steps.size();
    if (late.steps.size() > run.steps.size() || behind != static_cast<size_t>(options_.steps / 2))
      return false;
    for (size_t k = 0; k < late.steps.size(); ++k) {
      const Step &a = run.steps[behind + k], &b = late.steps[k];
      if (a.step != b.step || a.loss_hex != b.loss_hex || a.params_hash != b.params_hash) return false;
    }
    const int64_t last = run.steps.back().step;
    return differing_tensor(checkpoint::step_folder(run.folder, last),
                            checkpoint::step_folder(late.folder, last))
        .empty();
  }

  static std::string explain(const Difference& difference) {
    if (!difference.problem.empty()) return difference.problem;
    if (!difference.blame) return fmt::format("the loss differs by {}", size_text(difference.loss));
    const Blame& blame = *difference.blame;
    std::string text = fmt::format("gradients differ first in block {} ({}): {} by {}", blame.block,
                                   blame.block_name, blame.tensor, size_text(blame.difference));
    if (blame.blocks > 1) text += fmt::format(", and in {} more", blame.blocks - 1);
    return text;
  }

  // What "auto" came to, from the run's own config.
  void resolve_precision(const std::string& folder) {
    const recipe::Resolved ran = recipe::read_recipe({.file = folder + "/config.toml"});
    report_.small.recipe.precision.compute = ran.recipe.precision.compute;
    const bool rounds = ran.recipe.parallel.wire == "bf16";
    report_.tolerance = tolerance_of(rounds ? "bf16" : ran.recipe.precision.compute);
  }

  // Before anything is trained: whether the golden run is of this recipe.
  void check_golden() const {
    const recipe::Recipe golden = recipe::read_recipe({.file = options_.against + "/recipe.toml"}).recipe;
    const recipe::Recipe ours = recipe::read_recipe({.file = recipe_file_}).recipe;
    if (const std::vector<std::string> keys = recipe::differing_keys(golden, ours); !keys.empty()) {
      throw base::ConfigError(621,
                              fmt::format("the golden run in {} has another recipe: it differs in {}; verify "
                                          "the recipe it was made from, or make a new one with --keep",
                                          options_.against, base::join(keys, ", ")));
    }
  }

  void compare_with_golden() {
    const Run run = read_run(options_.against + "/" + kReference);
    report_.golden = compare(run, reference_, blocks_, report_.small.recipe, {});
    const bool holds = report_.golden->same_bits;
    report_.golden_note = holds ? "" : explain(*report_.golden);
    report_.holds = report_.holds && holds;
  }

  const Options& options_;
  const Train& train_;
  Report report_;
  std::vector<BlockNames> blocks_;
  std::string recipe_file_;
  Run reference_;
  std::atomic<bool> stopped_{false};
};

}  // namespace

Report verify(const Options& options, const Train& train) { return Verifier(options, train).run(); }

void check_keeps(const std::string& golden) {
  if (!fs::exists(golden)) return;
  throw base::ConfigError(621, golden + " already exists; choose a new folder, or remove it first");
}

void keep_golden(const std::string& folder, const std::string& golden) {
  check_keeps(golden);
  base::make_folders(golden);
  std::error_code error;
  fs::copy(folder + "/recipe.toml", golden + "/recipe.toml", error);
  if (!error)
    fs::copy(folder + "/" + kReference, golden + "/" + kReference, fs::copy_options::recursive, error);
  if (error)
    throw base::IoError(623, fmt::format("cannot store the golden run in {}: {}", golden, error.message()));
}

}  // namespace lockstep::verify
