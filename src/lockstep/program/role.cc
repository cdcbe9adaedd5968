#include "lockstep/program/role.h"

#include <fmt/format.h>

#include <array>

#include "lockstep/base/error.h"

namespace lockstep::program {

namespace {

// In the order of the enum.
constexpr std::array kNames = {"batch",   "in",       "out",     "save",   "din",       "dout",    "left",
                               "again",   "prep",     "scratch", "weight", "grad",      "buffer",  "stat",
                               "ring",    "ringgrad", "across",  "node",   "kept",      "sum",     "values",
                               "partial", "gradient", "chunks",  "moment", "workspace", "staging", "inputs",
                               "state",   "loss",     "losses",  "sums",   "from",      "into",    "tied",
                               "master",  "compute",  "copy",    "whole",  "share",     "tokens",  "heads",
                               "packed",  "arrived",  "onward",  "back",   "part",      "scalars", "zeros",
                               "field"};
static_assert(kNames.size() == static_cast<size_t>(Role::field) + 1);

}  // namespace

const char* name_of(Role role) { return kNames[static_cast<size_t>(role)]; }

std::string as(Role role, std::string_view name) { return fmt::format("{}.{}", name_of(role), name); }
bool is(std::string_view text, Role role) {
  const std::string_view word = name_of(role);
  return text.size() > word.size() && text.starts_with(word) && text[word.size()] == '.';
}

std::string_view name_in(std::string_view text) { return text.substr(text.find('.') + 1); }

Use named(int buffer, std::string_view text) {
  const std::string_view word = text.substr(0, text.find('.'));
  for (size_t k = 0; k <= static_cast<size_t>(Role::across); ++k) {
    if (word == kNames[k]) return {buffer, static_cast<Role>(k), std::string(name_in(text))};
  }
  LS_ASSERT(false, fmt::format("no role begins like {}", text));
  return {};
}

std::string text_of(const Use& use) {
  std::string text = use.role == Role::field ? use.name : name_of(use.role);
  if (use.role != Role::field && !use.name.empty()) text += "." + use.name;
  if (use.block >= 0) text += fmt::format(".{}", use.block);
  if (use.number >= 0) text += fmt::format(".{}", use.number);
  return text;
}

}  // namespace lockstep::program
