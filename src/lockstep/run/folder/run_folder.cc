#include "lockstep/run/folder/run_folder.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "lockstep/base/clock.h"
#include "lockstep/base/environment.h"
#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/run/folder/metrics_lines.h"
#include "lockstep/run/session/record.h"

namespace lockstep::run {

namespace fs = std::filesystem;
using nlohmann::json;

namespace {

// A write beside a file that was killed before its rename: CONFIG.PID.tmp. Nobody else writes here now.
void remove_leftovers(const std::string& folder) {
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    for (const char* own : {"config.toml.", "record.json.", "metrics.jsonl.", "events.jsonl."}) {
      const std::string_view number = std::string_view(name).substr(std::min(name.size(), std::strlen(own)));
      const bool ours = name.starts_with(own) && number.ends_with(".tmp") &&
                        number.find_first_not_of("0123456789") == number.size() - 4;
      std::error_code ignored;
      if (ours) fs::remove(at->path(), ignored);
    }
  }
}

std::vector<std::string> changes_of_record(const std::string& path, const json& record) {
  std::error_code error;
  if (!fs::exists(path, error)) return {};
  const json was = json::parse(base::read_file(path), nullptr, false);
  if (was.is_object()) return record_changes(was, record);
  return {path + " of the earlier run is not JSON, so it is unknown under which conditions it was computed"};
}

// The last step whose line is there, and the one that the run goes on from.
std::string missing_lines(int64_t last, int64_t first_step, int64_t every) {
  const int64_t expected = first_step - first_step % every;
  if (last >= expected) return "";
  return fmt::format(
      "metrics.jsonl lacks the lines of steps {} to {}: the disk was full or its rank was lost before they "
      "were written, or they were removed",
      last + 1, expected);
}

json finite_or_text(double value) {
  return std::isfinite(value) ? json(value) : json(fmt::format("{}", value));
}

// Which key signs is not the recipe's business: it belongs to whoever trains.
constexpr const char* kChainKey = "LOCKSTEP_CHAIN_KEY";

std::optional<SigningKey> signing_key(const std::string& path) {
  if (path.empty()) return std::nullopt;
  SigningKey key(path);
  if (!key.can_sign())
    throw base::ConfigError(
        337, fmt::format("{}={} is a public key, which cannot sign; name the private one", kChainKey, path));
  return key;
}

std::string hex_of(double value) { return fmt::format("{:a}", value); }

}  // namespace

RunFolder::RunFolder(std::string folder, Holder holder)
    : folder_(std::move(folder)), lock_(folder_, holder) {}

Begun RunFolder::begin(const Plan& plan, int64_t first_step, History history) {
  every_ = std::max<int64_t>(1, plan.recipe().log.every);
  remove_leftovers(folder_);
  const std::optional<recipe::Recipe> earlier =
      history == History::goes_on ? earlier_recipe(folder_) : std::nullopt;
  Begun begun;
  const json record = make_record(plan);
  if (first_step > 0) begun.changes = changes_of_record(folder_ + "/record.json", record);
  // Before anything else is written: this may be refused.
  const int64_t last = cut_lines_after(folder_ + "/metrics.jsonl", first_step);
  static_cast<void>(cut_lines_after(folder_ + "/histograms.jsonl", first_step));
  if (earlier) begun.missing = missing_lines(last, first_step, std::max<int64_t>(1, earlier->log.every));
  base::write_file_durable(folder_ + "/config.toml", recipe::write_toml(plan.recipe()));
  base::write_file_durable(folder_ + "/record.json", record.dump(2) + "\n");
  if (first_step == 0 && history == History::fresh) base::write_file_durable(folder_ + "/events.jsonl", "");
  begin_chain(plan, record, first_step, history);
  metrics_ = std::make_unique<PatientLines>(folder_ + "/metrics.jsonl");
  events_ = std::make_unique<PatientLines>(folder_ + "/events.jsonl");
  if (plan.recipe().log.histograms > 0)
    histograms_ = std::make_unique<PatientLines>(folder_ + "/histograms.jsonl");
  return begun;
}

// A run that goes on adds to the chain it has; one that starts over, or that had none, begins one.
void RunFolder::begin_chain(const Plan& plan, const json& record, int64_t first_step, History history) {
  const recipe::Recipe& recipe = plan.recipe();
  const std::string path = folder_ + "/chain.json";
  chain_.reset();
  if (!recipe.log.chain) return;
  std::optional<SigningKey> key = signing_key(base::environment(kChainKey).value_or(""));
  Genesis genesis{.recipe = recipe::write_toml(recipe),
                  .record = record.dump(),
                  .key_kind = key ? key->kind() : "",
                  .public_pem = key ? key->public_pem() : "",
                  .first_step = first_step};
  std::string link;
  if (history != History::fresh && first_step > 0 && fs::exists(path)) {
    const std::string text = base::read_file(path);
    const Genesis earlier = Genesis::from_text(text);
    if (earlier.key_kind != genesis.key_kind || earlier.public_pem != genesis.public_pem)
      throw base::ConfigError(
          337, fmt::format("the chain of {} was begun with {} key: name that one in {}, or start "
                           "over with --resume never",
                           folder_, earlier.key_kind.empty() ? "no" : "another", kChainKey));
    link = last_link(folder_ + "/metrics.jsonl");
    if (link.empty()) link = sha256_hex(text);
  } else {
    base::write_file_durable(path, genesis.to_text());
    link = sha256_hex(genesis.to_text());
  }
  chain_.emplace(std::move(link), std::move(key));
}

std::string RunFolder::unwritten() const {
  std::string text;
  for (const auto& [lines, name] : {std::pair(metrics_.get(), "metrics"), std::pair(events_.get(), "events"),
                                    std::pair(histograms_.get(), "histograms")}) {
    const size_t count = lines == nullptr ? 0 : lines->waiting() + lines->given_up();
    if (count > 0)
      text += fmt::format("{}{} line{} of {}/{}.jsonl", text.empty() ? "" : " and ", count,
                          count == 1 ? "" : "s", folder_, name);
  }
  return text;
}

void RunFolder::write(PatientLines& lines, std::string line) {
  const std::string why = lines.write(std::move(line));
  if (!why.empty() && on_trouble) on_trouble(why);
}

void RunFolder::stepped(const StepReport& r) {
  if (r.step % every_ != 0) return;
  json line{{"step", r.step}};
  line["loss"] = finite_or_text(r.loss);
  line["loss_hex"] = hex_of(r.loss);
  line["lr"] = r.learning_rate;
  line["grad_norm"] = finite_or_text(r.grad_norm);
  if (r.preference) {
    line["rewards/chosen"] = finite_or_text(r.preference->chosen);
    line["rewards/rejected"] = finite_or_text(r.preference->rejected);
    line["rewards/margins"] = finite_or_text(r.preference->margin());
    line["rewards/accuracies"] = r.preference->accuracy;
  }
  line[r.unit] = r.tokens;
  line[fmt::format("{}_per_s", r.unit)] = r.tokens_per_s;
  line["step_ms"] = r.step_ms;
  line["data_wait_ms"] = r.data_wait_ms;
  line["mfu"] = r.mfu ? json(*r.mfu) : json(nullptr);
  line["mem_gib"] = r.memory_gib;
  if (r.loss_scale != 1) line["loss_scale"] = r.loss_scale;
  if (!r.applied) line["skipped"] = true;
  if (!r.params_hash.empty()) line["params_hash"] = r.params_hash;
  if (chain_) chain_->seal(line);
  line["time"] = base::utc_timestamp();
  write(*metrics_, line.dump());
}

void RunFolder::evaluated(int64_t step, double loss) {
  json line{{"step", step}, {"eval_loss", finite_or_text(loss)}, {"eval_loss_hex", hex_of(loss)}};
  if (chain_) chain_->seal(line);
  line["time"] = base::utc_timestamp();
  write(*metrics_, line.dump());
}

void RunFolder::histogram(int64_t step, const std::string& block, const base::Histogram& gradient) {
  json line{{"step", step}, {"block", block}, {"count", gradient.count()}};
  line["smallest"] = gradient.smallest(), line["largest"] = gradient.largest();
  if (gradient.not_finite() > 0) line["not_finite"] = gradient.not_finite();
  line["edges"] = gradient.edges(), line["counts"] = gradient.counts();
  line["time"] = base::utc_timestamp();
  write(*histograms_, line.dump());
}

void RunFolder::event(const std::string& name, const std::string& why, int64_t step) {
  json line{{"event", name}, {"step", step}, {"why", why}, {"time", base::utc_timestamp()}};
  if (name == "first_step") line["seconds"] = base::seconds_since_process_start();
  for (const auto& [field, value] : kEndFields) {
    if (name == "finished" && end_.*value && std::isfinite(*(end_.*value))) line[field] = *(end_.*value);
  }
  write(*events_, line.dump());
}

}  // namespace lockstep::run
