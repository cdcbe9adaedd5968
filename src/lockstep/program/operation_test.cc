#include "lockstep/program/operation.h"

#include <gtest/gtest.h>

#include <regex>
#include <set>

#include "lockstep/base/file.h"

namespace lockstep::program {
namespace {

std::set<std::string> names_in(const std::string& text, const std::regex& pattern) {
  std::set<std::string> names;
  for (std::sregex_iterator it(text.begin(), text.end(), pattern), end; it != end; ++it)
    names.insert((*it)[1].str());
  return names;
}

// docs/one-step.md lists the operations: all of them, and no others.
TEST(Operation, IsInTheDocumentsTable) {
  const std::string header =
      base::read_file(std::string(LOCKSTEP_SOURCE) + "/src/lockstep/program/operation.h");
  const size_t begin = header.find("std::variant<"), end = header.find(">;", begin);
  ASSERT_NE(end, std::string::npos);
  const std::set<std::string> types =
      names_in(header.substr(begin + 13, end - begin - 13), std::regex("([A-Z][A-Za-z]+)"));
  EXPECT_EQ(types.size(), std::variant_size_v<Operation>);
  const std::string page = base::read_file(std::string(LOCKSTEP_SOURCE) + "/docs/one-step.md");
  const size_t table = page.find("| operation | verb |");
  ASSERT_NE(table, std::string::npos);
  const std::string rows = page.substr(table, page.find("\n\n", table) - table);
  EXPECT_EQ(names_in(rows, std::regex("`([A-Z][A-Za-z]+)`")), types);
}

template <size_t... N>
std::set<Verb> verbs(std::index_sequence<N...>) {
  return {verb_of(std::variant_alternative_t<N, Operation>{})...};
}

// Numbers stand in ring files: they name what they named before.
TEST(Operation, VerbsKeepTheirNumbers) {
  const std::pair<int, const char*> rows[] = {
      {0, "load"},      {1, "forward"}, {2, "loss"},    {3, "backward_input"}, {4, "backward_weight"},
      {5, "recompute"}, {6, "gather"},  {7, "release"}, {8, "reduce"},         {9, "sum"},
      {10, "exchange"}, {11, "send"},   {12, "recv"},   {13, "norm"},          {14, "update"},
      {16, "cast"}};
  for (const auto& [number, name] : rows) EXPECT_STREQ(name_of_verb(static_cast<uint16_t>(number)), name);
  EXPECT_EQ(name_of_verb(15), nullptr);
  EXPECT_EQ(name_of_verb(17), nullptr);
  for (const Verb verb : verbs(std::make_index_sequence<std::variant_size_v<Operation>>()))
    EXPECT_NE(name_of(verb), nullptr);
  for (const Pass pass : {Pass::forward, Pass::loss, Pass::recompute, Pass::backward_input,
                          Pass::backward_weight, Pass::prepare}) {
    EXPECT_NE(name_of(verb_of(RunSegment{pass})), nullptr);
  }
}

}  // namespace
}  // namespace lockstep::program
