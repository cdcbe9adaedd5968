#include "lockstep/cli/see/why_loss.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "lockstep/base/file.h"
#include "lockstep/base/number.h"
#include "lockstep/cli/print.h"
#include "lockstep/replay/replayer.h"
#include "lockstep/see/histogram_log.h"
#include "lockstep/see/recipe_keys.h"

namespace lockstep::cli {

namespace {

constexpr double kNothing = std::numeric_limits<double>::quiet_NaN();
constexpr size_t kMostBlocks = 3;

// From the middles of bins that are half an octave wide: right within a fifth, which is enough to see what
// grew.
double rms_of(const see::HistogramRow& row) {
  double squares = 0;
  for (size_t i = 0; i < row.counts.size(); ++i) {
    const bool around_zero = row.edges[i] < 0 && row.edges[i + 1] > 0;
    const double middle = around_zero ? 0 : (row.edges[i] + row.edges[i + 1]) / 2;
    squares += row.counts[i] * middle * middle;
  }
  return row.count > 0 ? std::sqrt(squares / row.count) : 0;
}

void keep_largest(std::vector<GrownBlock>& blocks) {
  const auto growth = [](const GrownBlock& one) { return one.before > 0 ? one.now / one.before : one.now; };
  std::stable_sort(blocks.begin(), blocks.end(),
                   [&](const GrownBlock& a, const GrownBlock& b) { return growth(a) > growth(b); });
  if (blocks.size() > kMostBlocks) blocks.resize(kMostBlocks);
}

// The last histograms before the step, and the first from there on.
void blocks_of_histograms(const std::string& folder, LossStory& story) {
  std::map<std::string, see::HistogramRow> before, now;
  see::HistogramLog log(folder);
  for (const see::HistogramRow& row : log.poll()) {
    if (row.step < story.event.step) before[row.block] = row;
    if (row.step >= story.event.step) now.try_emplace(row.block, row);
  }
  for (const auto& [block, row] : now) {
    const auto earlier = before.find(block);
    if (earlier != before.end()) story.blocks.push_back({block, rms_of(earlier->second), rms_of(row)});
  }
  if (story.blocks.empty()) return;
  story.blocks_from =
      fmt::format("histograms of steps {} and {}", before.begin()->second.step, now.begin()->second.step);
  keep_largest(story.blocks);
}

// Right, and takes the time of the steps from the nearest checkpoint.
void blocks_of_replay(const std::string& folder, LossStory& story) {
  replay::Replayer replayer(folder, {}, [](const std::string& line) { remark("{}\n", line); });
  const int64_t step = story.event.step;
  std::map<std::string, double> before;
  if (step > 1) {
    for (const replay::SeenBlock& one : replayer.step(step - 1, replay::Look::blocks).blocks)
      before[one.name] = one.gradient.rms();
  }
  for (const replay::SeenBlock& one : replayer.step(step, replay::Look::blocks).blocks) {
    const double now = one.gradient.nonfinite > 0 ? kNothing : one.gradient.rms();
    story.blocks.push_back({one.name, before[one.name], now});
  }
  story.blocks_from = fmt::format("steps {} and {}, computed again", step - 1, step);
  // What is not finite comes first.
  for (GrownBlock& one : story.blocks)
    one.now = std::isnan(one.now) ? std::numeric_limits<double>::infinity() : one.now;
  keep_largest(story.blocks);
}

std::string shown(double value) { return std::isnan(value) ? "not logged" : fmt::format("{:.4g}", value); }

nlohmann::json number(double value) {
  return std::isfinite(value) ? nlohmann::json(value) : nlohmann::json(nullptr);
}

}  // namespace

LossStory story_of(const std::string& folder, const see::RunEvent& event, const see::RunLog& log,
                   bool compute) {
  LossStory story{.event = event,
                  .loss_before = kNothing,
                  .loss = kNothing,
                  .norm_before = kNothing,
                  .norm = kNothing,
                  .rate = kNothing};
  const see::MetricTable& rows = log.rows();
  for (size_t i = 0; i < rows.size(); ++i) {
    const int64_t step = rows.step(i);
    const see::LogRow row = rows[i];
    if (step > event.step) break;
    const bool at = step == event.step;
    for (const auto& [name, value] : row.values) {
      if (name == "loss") (at ? story.loss : story.loss_before) = value;
      if (name == "grad_norm") (at ? story.norm : story.norm_before) = value;
      if (name == "lr" && at) story.rate = value;
    }
  }
  constexpr int64_t kMost = 1 << 20;
  const see::RecipeKeys keys = see::recipe_keys_of(base::try_read_file(folder + "/config.toml", kMost).text);
  story.samples = base::parse_number(see::value_of(keys, "batch.global")).value_or(0);
  story.first_sample = (event.step - 1) * story.samples;
  story.how_to_replay = fmt::format("lockstep replay {} --step {} --blocks", folder, event.step);
  if (compute) {
    blocks_of_replay(folder, story);
  } else {
    blocks_of_histograms(folder, story);
  }
  return story;
}

std::vector<std::string> lines_of(const LossStory& story) {
  std::vector<std::string> lines{"loss: " + story.event.why};
  if (!std::isnan(story.norm_before) || !std::isnan(story.norm))
    lines.push_back(fmt::format("gradient norm {}, before it {}; learning rate {}", shown(story.norm),
                                shown(story.norm_before), shown(story.rate)));
  if (story.samples > 0)
    lines.push_back(fmt::format("its batch: samples {} to {} of the run's order", story.first_sample,
                                story.first_sample + story.samples - 1));
  for (const GrownBlock& one : story.blocks) {
    lines.push_back(fmt::format(
        "{}: gradient rms {:.3g}, {:.3g} before{}", one.block, one.now, one.before,
        one.before > 0 && std::isfinite(one.now) ? fmt::format(": {:.1f} times", one.now / one.before) : ""));
  }
  if (!story.blocks.empty()) {
    lines.push_back(fmt::format("(the blocks that changed most, from {})", story.blocks_from));
  } else {
    lines.push_back("which blocks: add --replay to compute the step again (log.histograms would have told)");
  }
  lines.push_back("look inside: " + story.how_to_replay);
  return lines;
}

nlohmann::json json_of(const LossStory& story) {
  nlohmann::json blocks = nlohmann::json::array();
  for (const GrownBlock& one : story.blocks)
    blocks.push_back(
        {{"block", one.block}, {"gradient_rms", number(one.now)}, {"before", number(one.before)}});
  return {{"step", story.event.step},         {"why", story.event.why},
          {"grad_norm", number(story.norm)},  {"grad_norm_before", number(story.norm_before)},
          {"lr", number(story.rate)},         {"first_sample", story.first_sample},
          {"samples", story.samples},         {"blocks", blocks},
          {"blocks_from", story.blocks_from}, {"replay", story.how_to_replay}};
}

}  // namespace lockstep::cli
