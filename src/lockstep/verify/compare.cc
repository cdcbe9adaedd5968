#include "lockstep/verify/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/mapped_file.h"
#include "lockstep/base/text.h"
#include "lockstep/checkpoint/formats/safetensors.h"
#include "lockstep/checkpoint/formats/strict_json.h"
#include "lockstep/checkpoint/formats/widen.h"
#include "lockstep/checkpoint/step_folders.h"

namespace lockstep::verify {
namespace {

using checkpoint::SafetensorsFile;

// Every tensor of a checkpoint's files, by name.
class Tensors {
 public:
  explicit Tensors(const std::string& folder) {
    std::error_code error;
    std::vector<std::string> paths;
    for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
      if (entry.path().extension() == ".safetensors") paths.push_back(entry.path().string());
    }
    if (paths.empty()) throw base::DataError(622, folder + " contains no checkpoint");
    std::sort(paths.begin(), paths.end());
    for (const std::string& path : paths) {
      const SafetensorsFile& file = *files_.emplace_back(std::make_unique<SafetensorsFile>(path));
      const std::byte* memory = maps_.emplace_back(base::MappedFile::open(path)).bytes().data();
      for (const auto& [name, entry] : file.entries()) all_[name] = {&entry, memory + entry.begin};
    }
  }
  struct Found {
    const SafetensorsFile::Entry* entry = nullptr;
    const void* data = nullptr;
    int64_t bytes() const { return entry->end - entry->begin; }
  };
  const std::map<std::string, Found>& all() const { return all_; }

 private:
  std::vector<std::unique_ptr<SafetensorsFile>> files_;  // entries: checked to lie inside the file
  std::vector<base::MappedFile> maps_;
  std::map<std::string, Found> all_;
};

bool same_bits(const Tensors::Found& a, const Tensors::Found& b) {
  return a.entry->dtype == b.entry->dtype && a.entry->shape == b.entry->shape &&
         std::memcmp(a.data, b.data, static_cast<size_t>(a.bytes())) == 0;
}

std::vector<float> values_of(const Tensors::Found& tensor) {
  std::vector<float> values(static_cast<size_t>(tensor.bytes() / device::size_of(tensor.entry->dtype)));
  checkpoint::widen(tensor.data, tensor.entry->dtype, static_cast<int64_t>(values.size()), values.data());
  return values;
}

// What clipping divided the gradients of step 1 by.
double unclipped(const Run& run, const recipe::Recipe& recipe) {
  const double norm = run.steps.front().grad_norm, clip = recipe.optim.clip;
  return clip > 0 && std::isfinite(norm) && norm > clip ? norm / clip : 1;
}

// Largest difference relative to the largest value. Not a number is the largest of all.
double relative_difference(const Tensors::Found& a, double scale_a, const Tensors::Found& b, double scale_b) {
  if (a.entry->shape != b.entry->shape) return INFINITY;
  const std::vector<float> x = values_of(a), y = values_of(b);
  double largest = 0, most = 0;
  for (size_t k = 0; k < x.size(); ++k) {
    const double left = x[k] * scale_a, right = y[k] * scale_b, apart = std::abs(left - right);
    if (!(apart <= std::numeric_limits<double>::max()) && std::memcmp(&x[k], &y[k], sizeof(float)) != 0)
      return INFINITY;
    largest = std::max(largest, std::abs(left));
    most = std::max(most, apart);
  }
  return most == 0 ? 0 : largest == 0 ? INFINITY : most / largest;
}

double relative_loss(const Step& a, const Step& b) {
  if (a.loss_hex == b.loss_hex) return 0;
  const double apart = std::abs(a.loss - b.loss) / std::max(std::abs(a.loss), 1e-30);
  return std::isfinite(apart) ? apart : INFINITY;
}

Step step_of(const nlohmann::json& line) {
  const auto number = [&](const char* name) {
    const auto it = line.find(name);
    return it != line.end() && it->is_number() ? it->get<double>() : NAN;
  };
  Step step{
      .step = static_cast<int64_t>(number("step")), .loss = number("loss"), .grad_norm = number("grad_norm")};
  step.loss_hex = line.at("loss_hex").get<std::string>();
  step.params_hash = line.value("params_hash", "");
  return step;
}

std::string checkpoint_at(const Run& run, int64_t step) { return checkpoint::step_folder(run.folder, step); }

// Gradients of step 1, block by block.
void compare_gradients(const Run& reference, const Run& other, const std::vector<BlockNames>& blocks,
                       const recipe::Recipe& recipe, const Tolerance& tolerance, Difference& result) {
  const Tensors left(checkpoint_at(reference, 1)), right(checkpoint_at(other, 1));
  const double scale_left = unclipped(reference, recipe), scale_right = unclipped(other, recipe);
  const bool forward_agrees = relative_loss(reference.steps.front(), other.steps.front()) <= tolerance.loss;
  // Rounding of the clipped values is no fault of a block, where another one is wrong.
  const double limit = tolerance.bitwise ? 1e-6 : tolerance.gradient;
  Blame blame, bits;
  for (size_t b = 0; b < blocks.size(); ++b) {
    Blame worst{.block = static_cast<int>(b), .block_name = blocks[b].name, .tensor = "", .blocks = 0};
    bool differs = false;
    for (const std::string& name : blocks[b].params) {
      const auto x = left.all().find(name + ".m"), y = right.all().find(name + ".m");
      if (x == left.all().end() && y == right.all().end()) continue;  // this optimizer keeps no moment
      const bool both = x != left.all().end() && y != right.all().end();
      if (both && same_bits(x->second, y->second)) continue;
      const double apart =
          both ? relative_difference(x->second, scale_left, y->second, scale_right) : INFINITY;
      differs = true;
      result.by_tensor[name] = apart;
      if (worst.tensor.empty() || apart > worst.difference) worst.tensor = name, worst.difference = apart;
    }
    if (!differs) continue;
    result.gradient = std::max(result.gradient, worst.difference);
    for (Blame* one : {&blame, &bits}) {
      if (one == &blame && worst.difference <= limit) continue;
      const int count = one->blocks + 1;
      if (one->block < 0 || forward_agrees) *one = worst;
      one->blocks = count;
    }
  }
  if (blame.block < 0 && tolerance.bitwise) blame = bits;
  if (blame.block >= 0) result.blame = blame;
}

}  // namespace

Run read_run(const std::string& folder) {
  Run run{.folder = folder, .steps = {}};
  const std::string path = folder + "/metrics.jsonl";
  for (const std::string& line : base::split_lines(base::read_file(path))) {
    if (base::trimmed(line).empty()) continue;
    try {
      const nlohmann::json json = checkpoint::parse_strict(line, 622, path);
      if (!json.is_object() || !json.contains("loss_hex")) continue;
      run.steps.push_back(step_of(json));
      if (json.contains("mem_gib") && json["mem_gib"].is_number())
        run.memory_gib = std::max(run.memory_gib, json["mem_gib"].get<double>());
    } catch (const nlohmann::json::exception&) {
      throw base::DataError(622, path + " has an invalid line: " + base::quoted(line));
    }
  }
  if (run.steps.empty()) throw base::DataError(622, path + " contains no step; the run did not get that far");
  return run;
}

Tolerance tolerance_of(const std::string& compute) {
  if (compute == "fp32") return {.bitwise = false, .loss = 1e-5, .gradient = 1e-4};
  if (compute == "fp8") return {.bitwise = false, .loss = 1e-3, .gradient = 2e-1};  // to 3 or 4
  return {.bitwise = false, .loss = 2e-4, .gradient = 4e-2};  // a gradient is rounded to 8 bits on its way
}

bool Difference::within(const Tolerance& tolerance) const {
  if (!problem.empty()) return false;
  return tolerance.bitwise ? same_bits : loss <= tolerance.loss && gradient <= tolerance.gradient;
}

Difference compare(const Run& reference, const Run& other, const std::vector<BlockNames>& blocks,
                   const recipe::Recipe& recipe, const Tolerance& tolerance) {
  Difference result;
  if (reference.steps.size() != other.steps.size()) {
    result.problem =
        fmt::format("one run has {} steps, the other {}", reference.steps.size(), other.steps.size());
    return result;
  }
  result.same_bits = true;
  for (size_t k = 0; k < reference.steps.size(); ++k) {
    const Step &a = reference.steps[k], &b = other.steps[k];
    result.loss = std::max(result.loss, relative_loss(a, b));
    result.same_bits =
        result.same_bits && a.step == b.step && a.loss_hex == b.loss_hex && a.params_hash == b.params_hash;
  }
  if (reference.steps.front().step == 1)
    compare_gradients(reference, other, blocks, recipe, tolerance, result);
  for (const int64_t step : {reference.steps.front().step, reference.steps.back().step}) {
    const std::string apart = differing_tensor(checkpoint_at(reference, step), checkpoint_at(other, step));
    result.same_bits = result.same_bits && apart.empty();
  }
  return result;
}

std::string differing_tensor(const std::string& folder, const std::string& other) {
  const Tensors left(folder), right(other);
  for (const auto& [name, tensor] : left.all()) {
    const auto found = right.all().find(name);
    if (found == right.all().end() || !same_bits(tensor, found->second)) return name;
  }
  for (const auto& [name, tensor] : right.all()) {
    if (!left.all().contains(name)) return name;
  }
  return "";
}

}  // namespace lockstep::verify
