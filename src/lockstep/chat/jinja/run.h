// What a template is once it is read: functions that render its parts, and the state that they share while it renders.
#pragma once

#include <cstdint>
#include <ctime>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/chat/jinja/value.h"

namespace lockstep::chat::jinja {

// Names of a loop's turn, of a macro's call, or of the template; a name that is not here is looked for outside.
struct Scope {
  Scope* outside = nullptr;
  std::vector<std::pair<std::string, Value>> names;
  const Value* find(std::string_view name) const;
  void set(const std::string& name, Value value);
};

// Where rendered text goes. `generated` are the spans of {% generation %}: what the assistant says.
struct Output {
  std::string text;
  std::vector<std::pair<size_t, size_t>> generated;
};

struct Run {
  Scope* scope = nullptr;
  int line = 1;  // of the tag that runs
  int64_t steps = 0;
  int depth = 0;
  std::time_t now = 0;
  void step();  // Failure: the template goes on without end
  Scope* root() const {  // of the template itself
    Scope* found = scope;
    while (found->outside != nullptr) found = found->outside;
    return found;
  }
};

// How a loop's body ended.
enum class Flow { next, stop, again };

using Expression = std::function<Value(Run&)>;
using Statement = std::function<Flow(Run&, Output&)>;

struct ScopeGuard {
  ScopeGuard(Run& run, Scope& inner) : run_(run), before_(run.scope) { run.scope = &inner; }
  ~ScopeGuard() { run_.scope = before_; }
  ScopeGuard(const ScopeGuard&) = delete;
  ScopeGuard& operator=(const ScopeGuard&) = delete;

 private:
  Run& run_;
  Scope* before_;
};

}  // namespace lockstep::chat::jinja
