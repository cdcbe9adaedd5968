#include "lockstep/chat/jinja/statements.h"

#include <fmt/format.h>

#include <algorithm>

#include "lockstep/chat/jinja/operations.h"

namespace lockstep::chat::jinja {

Target name_target(std::string name) {
  return [name = std::move(name)](Run& run, const Value& value) { run.scope->set(name, value); };
}

Target tuple_target(std::vector<Target> all) {
  return [all = std::move(all)](Run& run, const Value& value) {
    const std::vector<Value> items = items_of(value);
    if (items.size() != all.size()) fail(fmt::format("{} values for {} names", items.size(), all.size()));
    for (size_t i = 0; i < all.size(); ++i) all[i](run, items[i]);
  };
}

Target namespace_target(std::string name, std::string attribute) {
  return [name = std::move(name), attribute = std::move(attribute)](Run& run, const Value& value) {
    const Value* found = run.scope->find(name);
    Object* object = found != nullptr ? found->object() : nullptr;
    if (object == nullptr || !object->writable)
      fail(fmt::format("{} is no namespace(): its attributes cannot be set", name));
    for (auto& [own, before] : object->attributes) {
      if (own == attribute) return void(before = value);
    }
    object->attributes.emplace_back(attribute, value);
  };
}

std::string captured(const Statement& body, Run& run) {
  Output inner;
  body(run, inner);
  return inner.text;
}

namespace {

constexpr int kDeepestCall = 200;

std::shared_ptr<Object> loop_object(const std::vector<Value>& items, int64_t i, int64_t count) {
  auto loop = std::make_shared<Object>();
  loop->type = "LoopContext";
  const auto neighbour = [&](int64_t at, const char* name) {
    return at >= 0 && at < count ? items[static_cast<size_t>(at)]
                                 : Value(Undefined{std::string("there is no ") + name});
  };
  const Function cycle{"cycle", [i](const Arguments& a) {
                         if (a.positional.empty()) fail("no items for cycling given");
                         return a.positional[static_cast<size_t>(i) % a.positional.size()];
                       }};
  loop->attributes = {{"index", i + 1},
                      {"index0", i},
                      {"revindex", count - i},
                      {"revindex0", count - i - 1},
                      {"first", i == 0},
                      {"last", i + 1 == count},
                      {"length", count},
                      {"depth", 1},
                      {"depth0", 0},
                      {"previtem", neighbour(i - 1, "previous item")},
                      {"nextitem", neighbour(i + 1, "next item")},
                      {"cycle", cycle}};
  return loop;
}

}  // namespace

Flow Loop::render(Run& run, Output& out) const {
  std::vector<Value> items = items_of(over(run));
  if (condition) items = kept(run, items);
  bool completed = false;  // a turn: one that break or continue cut short does not count for Jinja's else
  const auto count = static_cast<int64_t>(items.size());
  for (int64_t i = 0; i < count; ++i) {
    run.step();
    Scope inner{run.scope, {}};
    const ScopeGuard guard(run, inner);
    inner.set("loop", loop_object(items, i, count));
    target(run, items[static_cast<size_t>(i)]);
    const Flow flow = body(run, out);
    if (flow == Flow::stop) break;
    completed = completed || flow == Flow::next;
  }
  return !completed && otherwise ? otherwise(run, out) : Flow::next;
}

std::vector<Value> Loop::kept(Run& run, const std::vector<Value>& items) const {
  std::vector<Value> some;
  for (const Value& item : items) {
    Scope inner{run.scope, {}};
    const ScopeGuard guard(run, inner);
    target(run, item);
    if (is_true(condition(run))) some.push_back(item);
  }
  return some;
}

Value Macro::call(Run& run, Scope* outside, const Arguments& arguments) const {
  if (run.depth >= kDeepestCall) fail("macros call each other without end");
  if (arguments.positional.size() > parameters.size())
    fail(fmt::format("macro '{}' takes not more than {} argument(s)", name, parameters.size()));
  Scope inner{outside, {}};
  const ScopeGuard guard(run, inner);
  std::vector<std::string> known = parameters;
  known.push_back("caller");
  for (const auto& [given, value] : arguments.named) {
    if (std::find(known.begin(), known.end(), given) == known.end())
      fail(fmt::format("macro '{}' takes no keyword argument '{}'", name, given));
    if (given == "caller") inner.set(given, value);
  }
  for (size_t i = 0; i < parameters.size(); ++i) {
    const Value* given = arguments.find(i, parameters[i]);
    inner.set(parameters[i], given != nullptr ? *given
                             : defaults[i]
                                 ? defaults[i](run)
                                 : Value(Undefined{"parameter '" + parameters[i] + "' was not provided"}));
  }
  ++run.depth;
  const int line = run.line;
  std::string text = captured(body, run);
  run.line = line;
  --run.depth;
  return text;
}

}  // namespace lockstep::chat::jinja
