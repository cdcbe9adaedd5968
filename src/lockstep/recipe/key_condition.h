// When a recipe key counts. Every row of the table of keys says it, so that a key that is set in vain is
// named and not ignored:
//
//     make_key(MEMBER(optim.base_batch), is("optim.lr_scale", {"linear", "sqrt"}), "Samples a step for ...",
//     ...)
//
// and optim.base_batch=32 alone has no effect: "it is for optim.lr_scale = linear or sqrt, and that is none".
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "lockstep/recipe/recipe.h"

namespace lockstep::recipe {

// What a run is, beside its recipe.
struct Circumstances {
  const Recipe& recipe;  // with nothing left "auto" that conditions ask for
  int ranks = 1, nodes = 1;
  bool gpu = false;           // it computes on one
  bool launched = false;      // by a launcher, which keeps snapshots and watches
  bool evaluates = true;      // there is held-out data
  bool folder_given = false;  // --run names the run folder
};

struct Condition {
  std::string when;  // for people: "optim.name = sgd"; empty: always
  // Why it does not hold here, a clause for people; empty: it does. Null: it always does.
  std::function<std::string(const Circumstances&)> broken;
};

Condition always();
// Of another key's value; text, and true or false, as a recipe writes them but without quotes.
Condition is(const std::string& key, const std::vector<std::string>& values);
Condition is_not(const std::string& key, const std::vector<std::string>& values);
Condition is_empty(const std::string& key);
Condition above(const std::string& key, double bound);
// Of a table (recipe/choices.h): the row that `table` names reads the key whose condition this is. Said by
// those that do, "optim.name = adamw or lion", or by those that do not, "any model.family but mlp".
using ConditionOfKey = std::function<Condition(const std::string& key)>;
ConditionOfKey read_by(const std::string& table);
ConditionOfKey not_ignored_by(const std::string& table);
// Of the run.
Condition on_several_ranks();
Condition on_several_nodes();
Condition under_a_launcher();
Condition on_a_gpu();
Condition with_held_out_data();
Condition without_run_option();
// Each of them; the first that is broken says why.
Condition all_of(const std::vector<Condition>& conditions);

}  // namespace lockstep::recipe
