#include "lockstep/program/role.h"

#include <fmt/format.h>

#include <array>

namespace lockstep::program {

namespace {

// In the order of the enum.
constexpr std::array kNames = {"batch",  "in",    "out",      "save",     "din",    "dout",
                               "left",   "again", "prep",     "scratch",  "weight", "grad",
                               "buffer", "stat",  "ring",     "ringgrad", "across", "node",
                               "kept",   "sum",   "gradient", "chunks",   "moment"};
static_assert(kNames.size() == static_cast<size_t>(Role::moment) + 1);

}  // namespace

const char* name_of(Role role) { return kNames[static_cast<size_t>(role)]; }

std::string as(Role role, std::string_view name) { return fmt::format("{}.{}", name_of(role), name); }
std::string as(Role role, std::string_view name, int64_t of_slice) {
  return fmt::format("{}.{}.{}", name_of(role), name, of_slice);
}
std::string as(Role role, size_t number) { return fmt::format("{}.{}", name_of(role), number); }
std::string as(Role role, int block, int level) {
  return fmt::format("{}.{}.{}", name_of(role), block, level);
}

bool is(std::string_view text, Role role) {
  const std::string_view word = name_of(role);
  return text.size() > word.size() && text.starts_with(word) && text[word.size()] == '.';
}

std::string_view name_in(std::string_view text) { return text.substr(text.find('.') + 1); }

}  // namespace lockstep::program
