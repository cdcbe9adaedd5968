#include "lockstep/chat/jinja/run.h"

namespace lockstep::chat::jinja {

namespace {
constexpr int64_t kMostSteps = 5'000'000;
}

const Value* Scope::find(std::string_view name) const {
  for (const Scope* scope = this; scope != nullptr; scope = scope->outside) {
    for (const auto& [own, value] : scope->names) {
      if (own == name) return &value;
    }
  }
  return nullptr;
}

void Scope::set(const std::string& name, Value value) {
  for (auto& [own, before] : names) {
    if (own == name) {
      before = std::move(value);
      return;
    }
  }
  names.emplace_back(name, std::move(value));
}

void Run::step() {
  if (++steps > kMostSteps) fail("the template takes too many steps: it would go on without end");
}

}  // namespace lockstep::chat::jinja
