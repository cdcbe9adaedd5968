// What the tags that are more than text do: loops, macros, and the names that they give values to.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/chat/jinja/run.h"

namespace lockstep::chat::jinja {

// What a for, set or with gives values to: a name, several, or an attribute of a namespace.
using Target = std::function<void(Run&, const Value&)>;
Target name_target(std::string name);
Target tuple_target(std::vector<Target> all);
Target namespace_target(std::string name, std::string attribute);

// What a body renders, apart from the output.
std::string captured(const Statement& body, Run& run);

struct Loop {
  Target target;
  Expression over, condition;
  Statement body, otherwise;
  bool recursive = false;  // `loop(items)` renders the same body for others, one level deeper
  Flow render(Run& run, Output& out) const { return render(run, out, over(run), 0); }

 private:
  Flow render(Run& run, Output& out, const Value& all, int depth) const;
  // Those that the condition takes.
  std::function<std::optional<Value>()> kept(Run& run, std::function<std::optional<Value>()> items) const;
};

struct Macro {
  std::string name;
  std::vector<std::string> parameters;
  std::vector<Expression> defaults;  // null: none
  Statement body;
  // Names that the body asks for, without which arguments beyond the parameters are refused.
  bool asks_for_varargs = false, asks_for_kwargs = false, asks_for_caller = false;
  Value call(Run& run, Scope* outside, const Arguments& arguments) const;

 private:
  void take(Run& run, Scope& inner, const Arguments& arguments) const;
};

}  // namespace lockstep::chat::jinja
