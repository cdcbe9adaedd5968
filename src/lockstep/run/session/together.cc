#include "lockstep/run/session/together.h"

#include <nlohmann/json.hpp>

#include "lockstep/base/build_info.h"
#include "lockstep/base/version.h"
#include "lockstep/run/session/record.h"

namespace lockstep::run {

using nlohmann::json;

namespace {

constexpr comm::Duration kDecisionTimeout = std::chrono::hours(1);  // a launcher ends the others long before

std::string text_of(const json& value) { return value.is_string() ? value.get<std::string>() : value.dump(); }

}  // namespace

void compare_recipes(comm::World& world, const recipe::Recipe& recipe) {
  std::vector<std::pair<std::string, std::string>> facts = {{"the version", base::kVersion},
                                                            {"the source commit", base::source_commit()}};
  for (const recipe::Key& key : recipe::recipe_keys())
    facts.emplace_back(key.name, recipe::value_text(key, recipe));
  world.check_consistency(facts);
}

void compare_records(comm::World& world, const Plan& plan) {
  std::vector<std::pair<std::string, std::string>> facts;
  const json record = make_record(plan);
  for (const char* key :
       {"libtorch", "device", "instruction_set", "compute", "logits_chunk", "dataset_hash"}) {
    facts.emplace_back(key, text_of(record[key]));
  }
  world.check_consistency(facts);
}

Decision decide_together(comm::World& world, const std::function<Decision()>& decide) {
  if (world.size() == 1) return decide();
  if (world.first()) {
    Decision decision = decide();
    json origin = decision.resolved.origin;
    const json told{{"recipe", recipe::write_toml(decision.resolved.recipe)},
                    {"origin", origin},
                    {"done", decision.done},
                    {"step", decision.step},
                    {"checkpoints", decision.checkpoints},
                    {"lost", decision.lost}};
    world.store().set("run/decision", told.dump());
    return decision;
  }
  const json told = json::parse(world.store().get("run/decision", kDecisionTimeout));
  Decision decision;
  decision.resolved = recipe::read_recipe({.text = told.at("recipe").get<std::string>()});
  decision.resolved.origin = told.at("origin").get<std::map<std::string, std::string>>();
  decision.done = told.at("done").get<bool>();
  decision.step = told.at("step").get<int64_t>();
  decision.checkpoints = told.at("checkpoints").get<std::vector<std::string>>();
  decision.lost = told.at("lost").get<std::string>();
  return decision;
}

}  // namespace lockstep::run
