// What the tables of all folders hand down to the recipe's schema.
#include "lockstep/recipe/choices.h"

#include <map>

#include "lockstep/base/error.h"
#include "lockstep/comm/engine.h"
#include "lockstep/data/kind.h"
#include "lockstep/model/families/family.h"
#include "lockstep/model/segments/activation.h"
#include "lockstep/optim/optimizer.h"
#include "lockstep/optim/schedule.h"

namespace lockstep::recipe {
namespace {

template <class Row>
std::vector<Choice> choices_in(const std::vector<Row>& rows) {
  std::vector<Choice> choices;
  for (const Row& row : rows) choices.push_back({std::string(row.name), row.describe, row.reads});
  return choices;
}

std::vector<Choice> plain(const std::vector<std::string>& names) {
  std::vector<Choice> choices;
  for (const std::string& name : names) choices.push_back({name, "", {}});
  return choices;
}

}  // namespace

const std::vector<Choice>& choices_of(std::string_view key) {
  static const std::map<std::string, std::vector<Choice>, std::less<>> all = {
      {"model.family", choices_in(model::families())},
      {"data.kind", choices_in(data::dataset_kinds())},
      {"optim.name", choices_in(optim::optimizers())},
      {"optim.schedule", choices_in(optim::schedules())},
      {"parallel.engine", choices_in(comm::engines())},
      {"model.activation", plain(model::activation_names())},
  };
  const auto found = all.find(key);
  LS_ASSERT(found != all.end(), "no table for " + std::string(key));
  return found->second;
}

std::vector<std::string> choice_names(std::string_view key, std::vector<std::string> before) {
  for (const Choice& choice : choices_of(key)) before.push_back(choice.name);
  return before;
}

}  // namespace lockstep::recipe
