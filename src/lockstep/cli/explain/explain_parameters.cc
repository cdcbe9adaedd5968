// lockstep explain parameters: every parameter by its name, and how the recipe trains it.
#include <fmt/format.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "lockstep/base/text.h"
#include "lockstep/cli/commands.h"
#include "lockstep/cli/explain/explain_plan.h"
#include "lockstep/cli/print.h"
#include "lockstep/terminal/table.h"
#include "lockstep/terminal/terminal.h"

namespace lockstep::cli {

namespace {

// As the update sees it.
double decay_of(const run::Plan& plan, const model::ParamSpec& spec) {
  const bool decays = spec.decay || plan.optimizer.decay_all;
  return static_cast<double>(spec.train.weight_decay.value_or(decays ? plan.optimizer.weight_decay : 0.0f));
}

const std::string& rule_of(const run::Plan& plan, const model::ParamSpec& spec) {
  return plan.optimizer.rules[static_cast<size_t>(spec.train.rule)].kind->name;
}

void print_json(const run::Plan& plan) {
  nlohmann::json out = nlohmann::json::array();
  for (const model::Block& block : plan.model->blocks) {
    for (const model::ParamSpec& spec : block.params()) {
      const device::Shape whole = whole_shape(spec.cut, spec.shape);
      nlohmann::json row{{"name", spec.name}, {"frozen", spec.train.frozen}};
      for (int k = 0; k < whole.rank(); ++k) row["shape"].push_back(whole[k]);
      if (!spec.holds_values()) row["tied_to"] = spec.tied_to;
      if (model::stored_as(spec) == model::Stored::quantized)
        row["kept"] = kernels::name_of(spec.train.format);
      if (!spec.train.frozen) {
        row["lr_scale"] = spec.train.rate;
        row["weight_decay"] = decay_of(plan, spec);
        row["kind"] = rule_of(plan, spec);
      }
      out.push_back(std::move(row));
    }
  }
  print("{}\n", out.dump());
}

}  // namespace

int explain_parameters(const std::vector<std::string>& words) {
  PlanWords wanted;
  Arguments arguments("explain parameters",
                      "List the parameters of a recipe's model by name, and how each is trained.", words);
  add_plan_words(arguments, wanted);
  arguments.flag("--json", wanted.json, "as JSON");
  arguments.example("lockstep explain parameters first.toml",
                    "the names that tune.freeze and optim.groups match");
  arguments.example("lockstep explain parameters first.toml tune.train='*.bias'", "what is left to train");
  if (!arguments.parse()) return 0;
  const run::Plan plan = plan_for(wanted);
  if (wanted.json) {
    print_json(plan);
    return 0;
  }
  terminal::Table table({"parameter", "shape", "lr x", "decay", "optimizer"});
  for (const size_t column : {2, 3}) table.align_right(column);
  for (const model::Block& block : plan.model->blocks) {
    for (const model::ParamSpec& spec : block.params()) {
      const std::string shape = whole_shape(spec.cut, spec.shape).to_string();
      if (!spec.holds_values()) {
        table.add({spec.name, shape, "", "", "is " + spec.tied_to});
      } else if (spec.train.frozen) {
        const bool quantized = model::stored_as(spec) == model::Stored::quantized;
        const std::string how =
            quantized ? fmt::format("frozen, {}", kernels::name_of(spec.train.format)) : "frozen";
        table.add({spec.name, shape, "", "", how});
      } else {
        table.add({spec.name, shape, fmt::format("{:.4g}", spec.train.rate),
                   fmt::format("{:.4g}", decay_of(plan, spec)), rule_of(plan, spec)});
      }
    }
  }
  const auto all = static_cast<double>(plan.model->param_count()),
             trained = static_cast<double>(plan.model->trained_count());
  const terminal::Terminal terminal = terminal::terminal_of(STDOUT_FILENO);
  const std::string sum = fmt::format("{} parameters, {} of them trained ({:.3g} %)", base::human_count(all),
                                      base::human_count(trained), 100 * trained / all);
  print("{}\n{}\n", table.to_text(terminal), base::hanging(sum, terminal.width, 2));
  return 0;
}

}  // namespace lockstep::cli
