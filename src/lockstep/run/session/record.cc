#include "lockstep/run/session/record.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>
#include <set>

#include "lockstep/base/build_info.h"
#include "lockstep/base/hash.h"
#include "lockstep/base/version.h"
#include "lockstep/device/facts.h"
#include "lockstep/device/libraries.h"
#include "lockstep/model/families/fp8_recipe.h"

namespace lockstep::run {

namespace {

// What the promise of equal bits rests on; the rest of the record is for people.
struct Field {
  const char* key;
  const char* what;
};
constexpr Field kNumeric[] = {{"build", "the build"},
                              {"device", "the device"},
                              {"instruction_set", "the instruction set"},
                              {"compute", "the compute precision"},
                              {"kernels", "the choice of kernels"},
                              {"products", "the matrix product library"},
                              {"logits_chunk", "the logits chunk size"},
                              {"libtorch", "LibTorch"},
                              {"dataset_hash", "the data"}};

// Each choice once: the layers of a model make the same ones.
std::string kernel_choices(const Plan& plan) {
  std::set<std::string> choices;
  for (const model::Block& block : plan.model->blocks) {
    for (const auto& segment : block.segments()) {
      choices.insert(segment->numerics(plan.layout.slice, *plan.layout.kernels));
    }
  }
  choices.erase("");
  return fmt::format("{}", fmt::join(choices, ", "));
}

}  // namespace

nlohmann::json make_record(const Plan& plan) {
  const device::Properties device = plan.device->properties();
  nlohmann::json record;
  record["build"] = base::kVersion;
  record["source_commit"] = base::source_commit();
  record["source_modified"] = base::source_modified();
  record["libtorch"] = device::read_facts({}).torch_version;
  record["device"] = device.name;
  record["instruction_set"] = device.instruction_set;
  record["compute"] = plan.recipe().precision.compute == "fp8" ? model::fp8_words(plan.recipe())
                                                               : device::name_of(plan.model->compute);
  record["kernels"] = kernel_choices(plan);
  if (plan.device->id().kind == device::Kind::cuda) record["products"] = device::product_library();
  record["logits_chunk"] = plan.recipe().memory.logits_chunk.value;
  record["exact"] = plan.recipe().run.exact;
  record["parameters"] = plan.model->param_count();
  record["dataset"] = plan.dataset->describe();
  record["dataset_hash"] = base::hex64(plan.dataset->content_hash());
  return record;
}

std::vector<std::string> record_changes(const nlohmann::json& was, const nlohmann::json& is) {
  std::vector<std::string> changes;
  for (const Field& field : kNumeric) {
    if (!was.contains(field.key) || !is.contains(field.key) || was[field.key] == is[field.key]) continue;
    changes.push_back(
        fmt::format("{} was {}, is {}", field.what, was[field.key].dump(), is[field.key].dump()));
  }
  return changes;
}

}  // namespace lockstep::run
