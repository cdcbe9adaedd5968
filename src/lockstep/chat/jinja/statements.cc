#include "lockstep/chat/jinja/statements.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>

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

// What `loop` says. It looks ahead only when it is asked what only the next items tell, as jinja2's does: a
// condition, or a filter that is computed item by item, may depend on what the body has done so far.
class LoopState {
 public:
  LoopState(std::function<std::optional<Value>()> items, std::optional<int64_t> length, int depth)
      : items_(std::move(items)), length_(length), depth_(depth) {}

  std::optional<Value> next() {
    if (!looks_ahead()) return std::nullopt;
    before_ = std::exchange(current_, ahead_.front());
    ahead_.pop_front();
    ++index0_;
    return current_;
  }
  void end() { ended_ = true; }

  std::optional<Value> attribute(std::string_view name) {
    if (name == "index") return Value(index0_ + 1);
    if (name == "index0") return Value(index0_);
    if (name == "revindex") return Value(length() - index0_);
    if (name == "revindex0") return Value(length() - index0_ - 1);
    if (name == "first") return Value(index0_ == 0);
    if (name == "last") return Value(!looks_ahead());
    if (name == "length") return Value(length());
    if (name == "depth") return Value(depth_ + 1);
    if (name == "depth0") return Value(depth_);
    if (name == "previtem") return before_.value_or(Undefined{"there is no previous item"});
    if (name == "nextitem") return looks_ahead() ? ahead_.front() : Value(Undefined{"there is no next item"});
    return std::nullopt;
  }
  Value cycled(const Arguments& a) const {
    if (a.positional.empty()) fail("no items for cycling given");
    return a.positional[static_cast<size_t>(index0_) % a.positional.size()];
  }
  // Whether it is called with something else than the last time.
  Value changed(const Arguments& a) {
    const bool same = asked_ && is_equal(Value(List{a.positional}), Value(List{*asked_}));
    asked_ = a.positional;
    return !same;
  }

 private:
  bool looks_ahead() {  // false: there is no next item
    if (!ahead_.empty()) return true;
    if (ended_) return false;
    std::optional<Value> item = items_();
    ended_ = !item;
    if (item) ahead_.push_back(std::move(*item));
    return item.has_value();
  }
  int64_t length() {
    if (length_) return *length_;
    while (!ended_) {
      std::optional<Value> item = items_();
      ended_ = !item;
      if (item) ahead_.push_back(std::move(*item));
    }
    length_ = index0_ + 1 + static_cast<int64_t>(ahead_.size());
    return *length_;
  }

  std::function<std::optional<Value>()> items_;
  std::optional<int64_t> length_;
  int depth_;
  bool ended_ = false;
  std::deque<Value> ahead_;  // read before their turn
  int64_t index0_ = -1;
  std::optional<Value> before_, current_;
  std::optional<std::vector<Value>> asked_;
};

std::shared_ptr<Object> loop_object(const std::shared_ptr<LoopState>& state) {
  auto loop = std::make_shared<Object>();
  loop->type = "LoopContext";
  loop->computed = [state](std::string_view name) -> std::optional<Value> {
    if (name == "cycle") return Function{"cycle", [state](const Arguments& a) { return state->cycled(a); }};
    if (name == "changed")
      return Function{"changed", [state](const Arguments& a) { return state->changed(a); }};
    return state->attribute(name);
  };
  return loop;
}

}  // namespace

Flow Loop::render(Run& run, Output& out, const Value& all, int depth) const {
  const auto state = condition ? std::make_shared<LoopState>(kept(run, walk(all)), std::nullopt, depth)
                               : std::make_shared<LoopState>(walk(all), length_of(all), depth);
  const std::shared_ptr<Object> loop = loop_object(state);
  loop->call = [this, &run, depth, outside = run.scope](const Arguments& arguments) -> Value {
    if (!recursive) fail("the loop must have the 'recursive' marker to be called");
    if (arguments.positional.size() != 1 || !arguments.named.empty()) fail("loop() takes what it walks over");
    if (run.depth >= kDeepestCall) fail("a loop calls itself without end");
    const ScopeGuard guard(run, *outside);
    Output inner;
    ++run.depth;
    render(run, inner, arguments.positional[0], depth + 1);
    --run.depth;
    return inner.text;
  };
  bool completed = false;  // a turn: one that break or continue cut short does not count for Jinja's else
  while (const std::optional<Value> item = state->next()) {
    run.step();
    Scope inner{run.scope, {}};
    const ScopeGuard guard(run, inner);
    inner.set("loop", loop);
    target(run, *item);
    const Flow flow = body(run, out);
    if (flow == Flow::stop) break;
    completed = completed || flow == Flow::next;
  }
  // Whoever kept `loop` finds nothing more: names of the condition, and those around it, may be gone.
  state->end();
  loop->call = [](const Arguments&) -> Value { fail("a loop that is over cannot be called"); };
  return !completed && otherwise ? otherwise(run, out) : Flow::next;
}

std::function<std::optional<Value>()> Loop::kept(Run& run,
                                                 std::function<std::optional<Value>()> items) const {
  return [this, &run, outside = run.scope, items = std::move(items)]() -> std::optional<Value> {
    while (std::optional<Value> item = items()) {
      run.step();
      Scope inner{outside, {}};
      const ScopeGuard guard(run, inner);
      target(run, *item);
      if (is_true(condition(run))) return item;
    }
    return std::nullopt;
  };
}

// Positional ones go to the parameters in order, what is left of the named ones to those that got none.
void Macro::take(Run& run, Scope& inner, const Arguments& arguments) const {
  const size_t given = arguments.positional.size();
  if (given > parameters.size() && !asks_for_varargs)
    fail(fmt::format("macro '{}' takes not more than {} argument(s)", name, parameters.size()));
  Dict others;
  std::optional<Value> caller;
  std::vector<const Value*> values(parameters.size(), nullptr);
  for (size_t i = 0; i < std::min(given, values.size()); ++i) values[i] = &arguments.positional[i];
  for (const auto& [word, value] : arguments.named) {
    const auto at =
        static_cast<size_t>(std::find(parameters.begin(), parameters.end(), word) - parameters.begin());
    if (at < values.size() && values[at] == nullptr) {
      values[at] = &value;
    } else if (word == "caller" && asks_for_caller) {
      caller = value;
    } else if (asks_for_kwargs) {
      others.set(Value(word), value);
    } else {
      fail(fmt::format("macro '{}' takes no keyword argument '{}'", name, word));
    }
  }
  if (asks_for_caller) inner.set("caller", caller.value_or(Undefined{"No caller defined"}));
  for (size_t i = 0; i < parameters.size(); ++i) {
    inner.set(parameters[i], values[i] != nullptr ? *values[i]
                             : defaults[i]
                                 ? defaults[i](run)
                                 : Value(Undefined{"parameter '" + parameters[i] + "' was not provided"}));
  }
  List more{.items = {}, .tuple = true};
  for (size_t i = parameters.size(); i < given; ++i) more.items.push_back(arguments.positional[i]);
  if (asks_for_varargs) inner.set("varargs", more);
  if (asks_for_kwargs) inner.set("kwargs", others);
}

Value Macro::call(Run& run, Scope* outside, const Arguments& arguments) const {
  if (run.depth >= kDeepestCall) fail("macros call each other without end");
  Scope inner{outside, {}};
  const ScopeGuard guard(run, inner);
  take(run, inner, arguments);
  ++run.depth;
  const int line = run.line;
  std::string text = captured(body, run);
  run.line = line;
  --run.depth;
  return text;
}

}  // namespace lockstep::chat::jinja
