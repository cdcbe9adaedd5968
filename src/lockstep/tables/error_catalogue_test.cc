#include "lockstep/base/error_catalogue.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/version.h"

namespace lockstep::base {
namespace {

// Every number that a source file throws: `Error(107,` in any of its kinds.
std::map<int, std::string> numbers_in_sources() {
  std::map<int, std::string> numbers;
  const std::regex pattern("Error\\(\\s*(\\d+)\\s*,");
  for (const auto& file : std::filesystem::recursive_directory_iterator(LOCKSTEP_SOURCE "/src")) {
    const std::string name = file.path().filename().string();
    const bool source = name.ends_with(".cc") || name.ends_with(".h") || name.ends_with(".cu");
    if (!file.is_regular_file() || !source || name.ends_with("_test.cc")) continue;
    const std::string text = read_file(file.path().string());
    for (std::sregex_iterator found(text.begin(), text.end(), pattern), end; found != end; ++found) {
      numbers.emplace(std::stoi((*found)[1].str()), file.path().string());
    }
  }
  return numbers;
}

TEST(ErrorCatalogue, ExplainsEveryNumberInTheSources) {
  const std::map<int, std::string> numbers = numbers_in_sources();
  EXPECT_GE(numbers.size(), 10u);  // the search itself works
  for (const auto& [number, file] : numbers) {
    EXPECT_NE(find_error(number), nullptr) << code_name(number) << " in " << file << " has no row";
  }
}

// Numbers are for people: who must tell one error from another catches a type of its own.
TEST(Errors, NobodyDecidesByTheirNumber) {
  const std::regex pattern("error\\.number\\(\\)\\s*(==|!=|<|>|/|%)");
  for (const auto& file : std::filesystem::recursive_directory_iterator(LOCKSTEP_SOURCE "/src/lockstep")) {
    const std::string name = file.path().filename().string();
    if (!file.is_regular_file() || name.ends_with("_test.cc")) continue;
    EXPECT_FALSE(std::regex_search(read_file(file.path().string()), pattern)) << file.path();
  }
}

// Numbers also reach an error by a name or an argument, and scripts write them out.
TEST(ErrorCatalogue, HasNoRowThatNothingLeadsTo) {
  const std::regex pattern(R"((?:[(,=?:{]|return)\s*(\d{3})\s*[,);:}]|LS0(\d{3}))");
  std::vector<std::filesystem::path> files{LOCKSTEP_SOURCE "/dev"};
  for (const char* folder : {LOCKSTEP_SOURCE "/src/lockstep", LOCKSTEP_SOURCE "/tools"}) {
    for (const auto& file : std::filesystem::recursive_directory_iterator(folder)) {
      const std::string ending = file.path().extension(), name = file.path().stem();
      const bool speaks =
          ending == ".cc" || ending == ".h" || ending == ".cu" || ending == ".py" || ending == ".sh";
      if (speaks && !name.ends_with("_test") && name != "errors") files.push_back(file.path());
    }
  }
  std::set<int> said;
  for (const std::filesystem::path& file : files) {
    const std::string text = read_file(file.string());
    for (std::sregex_iterator found(text.begin(), text.end(), pattern), end; found != end; ++found)
      said.insert(std::stoi((*found)[1].str() + (*found)[2].str()));
  }
  for (const ErrorExplanation& row : error_catalogue())
    EXPECT_TRUE(said.contains(row.number)) << code_name(row.number) << ": nothing says it any more";
}

TEST(ErrorCatalogue, RowsAreInOrderAndComplete) {
  int last = 0;
  for (const ErrorExplanation& row : error_catalogue()) {
    EXPECT_GT(row.number, last) << "out of order or twice";
    last = row.number;
    EXPECT_FALSE(row.title.empty()) << row.number;
    EXPECT_FALSE(row.causes.empty()) << row.number;
    EXPECT_FALSE(row.remedies.empty()) << row.number;
  }
}

TEST(ErrorCatalogue, CodesAreReadInEveryWriting) {
  for (const char* text : {"LS0107", "ls107", "Ls0107", "0107", "107"})
    EXPECT_EQ(parse_code(text), 107) << text;
  for (const char* text : {"", "LS", "LS01x7", "optim.lr", "LS99999999999", "-107"}) {
    EXPECT_EQ(parse_code(text), std::nullopt) << text;
  }
}

TEST(Version, IsTheBuildsOwn) {
  const std::string build = read_file(LOCKSTEP_SOURCE "/CMakeLists.txt");
  EXPECT_NE(build.find(std::string("project(lockstep VERSION ") + kVersion + " "), std::string::npos);
}

}  // namespace
}  // namespace lockstep::base
