#include "lockstep/base/environment.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"

namespace lockstep::base {
namespace {

namespace fs = std::filesystem;

// Folders of src/lockstep by the variable that a source in them names as a string of its own, or reads by
// getenv.
struct Found {
  std::map<std::string, std::set<std::string>> folders;  // by variable
  std::vector<std::string> by_themselves;  // sources that ask the environment for one, past the table
};

bool is_test(const std::string& name) { return name.ends_with("_test.cc") || name.ends_with("testing.h"); }

Found look_through(const fs::path& root) {
  Found found;
  const std::regex named("\"(LOCKSTEP_[A-Z0-9_]+)=?\""), read("getenv\\(\\s*\"LOCKSTEP_");
  for (const auto& entry : fs::recursive_directory_iterator(root)) {
    const std::string name = entry.path().filename(), ending = entry.path().extension();
    if ((ending != ".cc" && ending != ".h" && ending != ".cu") || name.starts_with("environment")) continue;
    const std::string text = read_file(entry.path().string());
    const std::string folder = *entry.path().lexically_relative(root).begin();
    for (std::sregex_iterator it(text.begin(), text.end(), named), end; it != end; ++it)
      found.folders[(*it)[1].str()].insert(folder);
    if (!is_test(name) && std::regex_search(text, read)) found.by_themselves.push_back(entry.path().string());
  }
  return found;
}

TEST(EnvironmentVariables, OfTheSourcesAreTheTable) {
  const Found found = look_through(LOCKSTEP_SOURCE "/src/lockstep");
  EXPECT_EQ(found.by_themselves, std::vector<std::string>{}) << "use base::environment()";
  std::set<std::string> rows;
  for (const EnvironmentVariable& row : environment_variables()) {
    SCOPED_TRACE(row.name);
    EXPECT_TRUE(rows.insert(row.name).second) << "twice";
    ASSERT_TRUE(found.folders.contains(row.name)) << "nothing reads it";
    std::istringstream words(row.read_by);
    for (std::string folder; words >> folder;)
      EXPECT_TRUE(found.folders.at(row.name).contains(folder)) << folder << " does not read it";
  }
  for (const auto& [name, folders] : found.folders)
    EXPECT_TRUE(rows.contains(name)) << name << " is read in " << *folders.begin() << " and has no row";
}

// What scripts and documents tell users to set exists.
TEST(EnvironmentVariables, OfTheDocumentsAreTheTableOrOfScripts) {
  const std::set<std::string> of_scripts = {
      "LOCKSTEP_TORCH",   "LOCKSTEP_JOBS",  "LOCKSTEP_REBUILD",  "LOCKSTEP_FLASH_HEADS",
      "LOCKSTEP_STRINGS", "LOCKSTEP_ARROW", "LOCKSTEP_ATTEMPTS", "LOCKSTEP_TEST_KUBERNETES"};
  const std::set<std::string> of_the_build = {"LOCKSTEP_CUDA", "LOCKSTEP_TESTS", "LOCKSTEP_KERNELS"};
  const std::regex pattern("`(LOCKSTEP_[A-Z0-9_]+)");
  for (const auto& entry : fs::recursive_directory_iterator(LOCKSTEP_SOURCE "/docs")) {
    if (entry.path().extension() != ".md") continue;
    const std::string text = read_file(entry.path().string());
    for (std::sregex_iterator it(text.begin(), text.end(), pattern), end; it != end; ++it) {
      const std::string name = (*it)[1].str();
      bool known = of_scripts.contains(name) || of_the_build.contains(name);
      for (const EnvironmentVariable& row : environment_variables()) known |= row.name == name;
      EXPECT_TRUE(known) << name << " in " << entry.path();
    }
  }
}

TEST(Environment, IsReadByTheTable) {
  ::setenv("LOCKSTEP_GRAPH", "off", 1);
  EXPECT_EQ(environment("LOCKSTEP_GRAPH"), "off");
  ::unsetenv("LOCKSTEP_GRAPH");
  EXPECT_EQ(environment("LOCKSTEP_GRAPH"), std::nullopt);
  EXPECT_TRUE(environment("PATH").has_value());
  EXPECT_THROW(environment("LOCKSTEP_NO_SUCH_THING"), Bug);
}

}  // namespace
}  // namespace lockstep::base
