#include "lockstep/recipe/key_condition.h"

#include <fmt/format.h>

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/recipe/choices.h"
#include "lockstep/recipe/schema.h"
#include "lockstep/recipe/toml.h"

namespace lockstep::recipe {
namespace {

const Key& key_named(const std::string& name) {
  const Key* key = find_key(name);
  LS_ASSERT(key != nullptr, "no recipe key " + name);
  return *key;
}

// Without the quotes of text.
std::string value_of(const std::string& name, const Recipe& recipe) {
  const Key& key = key_named(name);
  const auto member = key.member(const_cast<Recipe&>(recipe));  // only read
  if (const auto* text = std::get_if<std::string*>(&member)) return **text;
  return value_text(key, recipe);
}

double number_of(const std::string& name, const Recipe& recipe) {
  const auto member = key_named(name).member(const_cast<Recipe&>(recipe));  // only read
  if (const auto* whole = std::get_if<int64_t*>(&member)) return static_cast<double>(**whole);
  const auto* number = std::get_if<double*>(&member);
  LS_ASSERT(number != nullptr, name + " is no number");
  return **number;
}

// The rows of a table that read the key, or those that do not.
std::vector<std::string> rows_that_read(const std::string& table, const std::string& key, bool wanted) {
  std::vector<std::string> names;
  bool any = false;
  for (const Choice& choice : choices_of(table)) {
    const bool reads = std::find(choice.reads.begin(), choice.reads.end(), key) != choice.reads.end();
    any |= reads;
    if (reads == wanted) names.push_back(choice.name);
  }
  LS_ASSERT(any, "no row of " + table + " reads " + key);
  return names;
}

std::string shown(const std::string& value) { return value.empty() ? "empty" : value; }

std::string bound_text(double bound) { return fmt::format("{:g}", bound); }

Condition of_run(std::string when, bool (*holds)(const Circumstances&), std::string why) {
  return {std::move(when),
          [holds, why = std::move(why)](const Circumstances& c) { return holds(c) ? std::string() : why; }};
}

}  // namespace

Condition always() { return {}; }

Condition is(const std::string& key, const std::vector<std::string>& values) {
  const std::string wanted = fmt::format("{} = {}", key, base::join(values, " or "));
  return {wanted, [=](const Circumstances& c) -> std::string {
            const std::string value = value_of(key, c.recipe);
            if (std::find(values.begin(), values.end(), value) != values.end()) return "";
            return fmt::format("it applies to {}, but that is {}", wanted, shown(value));
          }};
}

Condition is_not(const std::string& key, const std::vector<std::string>& values) {
  if (values.empty()) return always();
  return {fmt::format("any {} but {}", key, base::join(values, " or ")), [=](const Circumstances& c) {
            const std::string value = value_of(key, c.recipe);
            const bool named = std::find(values.begin(), values.end(), value) != values.end();
            return named ? fmt::format("{} is {}", key, value) : std::string();
          }};
}

ConditionOfKey read_by(const std::string& table) {
  return [=](const std::string& key) {
    const std::vector<std::string> rows = rows_that_read(table, key, true);
    Condition condition = is(table, rows);
    if (table != "optim.name") return condition;
    // Parameter groups may ask for other optimizers.
    condition.broken = [rows, by_name = condition.broken](const Circumstances& c) -> std::string {
      const std::string groups = c.recipe.optim.groups + " ";
      for (const std::string& row : rows) {
        for (const char* end : {" ", ",", ";"}) {
          if (groups.find("kind=" + row + end) != std::string::npos) return "";
        }
      }
      return by_name(c);
    };
    return condition;
  };
}

ConditionOfKey not_ignored_by(const std::string& table) {
  return [=](const std::string& key) { return is_not(table, rows_that_read(table, key, false)); };
}

Condition is_empty(const std::string& key) {
  return {key + " empty", [=](const Circumstances& c) -> std::string {
            return value_of(key, c.recipe).empty() ? "" : key + " is set and takes precedence";
          }};
}

Condition above(const std::string& key, double bound) {
  const std::string wanted = fmt::format("{} above {}", key, bound_text(bound));
  return {wanted, [=](const Circumstances& c) -> std::string {
            const double number = number_of(key, c.recipe);
            if (number > bound) return "";
            return fmt::format("it applies to {}, but that is {}", wanted, bound_text(number));
          }};
}

Condition on_several_ranks() {
  return of_run(
      "several ranks", [](const Circumstances& c) { return c.ranks > 1; },
      "this run has a single rank (start more with --nproc N)");
}

Condition on_several_nodes() {
  return of_run(
      "several nodes", [](const Circumstances& c) { return c.nodes > 1; },
      "this run has a single node (--nnodes N)");
}

Condition under_a_launcher() {
  return of_run(
      "under a launcher", [](const Circumstances& c) { return c.launched; },
      "this run has no launcher (use --nproc 1 to start it under one)");
}

Condition on_a_gpu() {
  return of_run(
      "on a GPU", [](const Circumstances& c) { return c.gpu; }, "this run is on the CPU");
}

Condition with_held_out_data() {
  return of_run(
      "held-out data", [](const Circumstances& c) { return c.evaluates; },
      "no data is held out for evaluation (data.eval_fraction, data.eval_path)");
}

Condition without_run_option() {
  return of_run(
      "without --run", [](const Circumstances& c) { return !c.folder_given; }, "--run sets the folder");
}

Condition all_of(const std::vector<Condition>& conditions) {
  std::vector<std::string> whens;
  for (const Condition& one : conditions) {
    if (!one.when.empty()) whens.push_back(one.when);
  }
  return {base::join(whens, ", "), [=](const Circumstances& c) -> std::string {
            for (const Condition& one : conditions) {
              if (!one.broken) continue;
              if (std::string why = one.broken(c); !why.empty()) return why;
            }
            return "";
          }};
}

}  // namespace lockstep::recipe
