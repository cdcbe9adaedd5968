// What the documents print is what the program prints.
//
// A sample stands in a fenced block behind one or several comments that say where it comes from:
//
//     <!-- sample: lockstep explain LS0107 -->        the block is what this prints; "..." leaves lines out
//     <!-- sample has: lockstep train --dry-run -->   what this prints stands in the block, in this order
//     <!-- shape has: lockstep train run.steps=9 -->  the same, whatever the numbers are
//
// Times, rates, this machine's memory and its processor are never compared. Every command is run in a scratch
// folder with the recipes of the source beside it, by bash; lockstep is this build.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "lockstep/base/file.h"
#include "lockstep/base/temporary_folder.h"
#include "lockstep/base/text.h"
#include "lockstep/cli/testing.h"
#include "lockstep/recipe/schema.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

struct Sample {
  std::string place;  // docs/errors.md:5
  std::string kind;   // sample, sample has, shape has
  std::string command;
  std::vector<std::string> block;
};

std::vector<Sample> samples_of(const fs::path& file) {
  static const std::regex comment("^<!-- (sample|sample has|shape has): (.*) -->$");
  std::vector<Sample> found, waiting;
  const std::vector<std::string> lines = base::split_lines(base::read_file(file.string()));
  for (size_t n = 0; n < lines.size(); ++n) {
    std::smatch match;
    if (std::regex_match(lines[n], match, comment)) {
      waiting.push_back({fmt::format("{}:{}", file.filename().string(), n + 1), match[1], match[2], {}});
    } else if (lines[n].starts_with("```") && !waiting.empty()) {
      std::vector<std::string> block;
      while (++n < lines.size() && !lines[n].starts_with("```")) block.push_back(lines[n]);
      for (Sample& sample : waiting) {
        sample.block = block;
        found.push_back(std::move(sample));
      }
      waiting.clear();
    }
  }
  EXPECT_TRUE(waiting.empty()) << file << ": a sample's comment without a block";
  return found;
}

std::string without(const std::string& text, const char* pattern, const char* instead) {
  return std::regex_replace(text, std::regex(pattern), instead);
}

// What no two runs share.
std::string masked(std::string line, bool numbers) {
  line = without(line, R"(^device  .*)", "device");
  line = without(line, R"([0-9.]+( [kMB])? (tokens|samples)/s)", "RATE");
  line = without(line, R"((([0-9]+ [dhm] )?[0-9.]+ (us|ms|s|m|h))\b)", "TIME");
  line = without(line, R"( of [0-9.]+ [KMGT]iB$)", " of MEMORY");
  line = without(line, R"([0-9.]+ [KMGT]iB available)", "MEMORY available");
  if (numbers) line = without(line, R"([0-9]+(\.[0-9]+)?)", "N");
  line.erase(line.find_last_not_of(' ') + 1);
  return line;
}

std::vector<std::string> masked_lines(const std::vector<std::string>& lines, bool numbers) {
  std::vector<std::string> out;
  for (const std::string& line : lines) out.push_back(masked(line, numbers));
  while (!out.empty() && out.back().empty()) out.pop_back();
  return out;
}

// "..." stands for any lines; a line of a block may also begin with the command that gives it.
bool matches(const std::vector<std::string>& block, size_t b, const std::vector<std::string>& output,
             size_t o) {
  if (b == block.size()) return o == output.size();
  if (block[b] == "...") {
    for (size_t next = o; next <= output.size(); ++next) {
      if (matches(block, b + 1, output, next)) return true;
    }
    return false;
  }
  if (block[b].starts_with("$ ")) return matches(block, b + 1, output, o);
  return o < output.size() && block[b] == output[o] && matches(block, b + 1, output, o + 1);
}

// The first line of `output` that the block does not have behind those before it; empty: it has all.
std::string missing(const std::vector<std::string>& block, const std::vector<std::string>& output) {
  size_t at = 0;
  for (const std::string& line : output) {
    while (at < block.size() && block[at] != line) ++at;
    if (at++ >= block.size()) return line.empty() ? "(an empty line)" : line;
  }
  return "";
}

void check(const Sample& sample) {
  SCOPED_TRACE(sample.place + ": " + sample.command);
  base::TemporaryFolder folder;
  folder.write("bin/lockstep", fmt::format("#!/bin/sh\nexec '{}' \"$@\"\n", LOCKSTEP_PROGRAM));
  fs::permissions(folder.path() + "/bin/lockstep", fs::perms::owner_all);
  fs::create_symlink(std::string(LOCKSTEP_SOURCE) + "/recipes", folder.path() + "/recipes");
  folder.write("sample.sh", sample.command + "\n");
  const Outcome outcome =
      run_shell(folder.path(), "PATH=\"$PWD/bin:$PATH\" COLUMNS=100 CUDA_VISIBLE_DEVICES= bash sample.sh");
  const bool shape = sample.kind == "shape has";
  const std::vector<std::string> block = masked_lines(sample.block, shape);
  const std::vector<std::string> output = masked_lines(base::split_lines(outcome.output), shape);
  EXPECT_FALSE(output.empty());
  if (sample.kind == "sample") {
    EXPECT_TRUE(matches(block, 0, output, 0)) << "the program prints now:\n" << outcome.output;
  } else {
    EXPECT_EQ(missing(block, output), "") << "is not in the block; the program prints now:\n"
                                          << outcome.output;
  }
}

std::vector<fs::path> documents() {
  const fs::path source = LOCKSTEP_SOURCE;
  std::vector<fs::path> files = {source / "README.md"};
  for (const auto& entry : fs::recursive_directory_iterator(source / "docs")) {
    if (entry.path().extension() == ".md") files.push_back(entry.path());
  }
  return files;
}

TEST(Docs, SamplesAreWhatTheProgramPrints) {
  size_t count = 0;
  for (const fs::path& file : documents()) {
    for (const Sample& sample : samples_of(file)) {
      check(sample);
      ++count;
    }
  }
  EXPECT_GE(count, 12u);  // the comments are still understood
}

// A command that the documents tell the reader to type: `lockstep NAME WORDS`.
struct Typed {
  std::string place, name;
  std::vector<std::string> words;
};

// Up to what the shell takes, a comment, or the program that `launch` starts.
Typed typed(const std::string& place, const std::string& text) {
  Typed command{.place = place + ": " + text};
  std::string line = text.substr(0, text.find("   "));  // what it does stands behind a gap
  line = without(line, R"(("[^"]*"|'[^']*'))", "QUOTED");
  line = line.substr(0, line.find_first_of("#|;&><\\"));
  std::istringstream words(line);
  for (std::string word; words >> word;) {
    word = without(word, R"(^\[+|[\],.]+$)", "");
    if (word.empty() || command.name == "lockstep") continue;
    if (command.name.empty()) {
      command.name = word;
    } else if (word == "--" || (command.name == "launch" && word.ends_with(".py"))) {
      break;
    } else {
      command.words.push_back(word);
    }
  }
  return command;
}

std::vector<Typed> commands_in(const fs::path& file) {
  static const std::regex at_start(R"(^\s*(\S*\$ |\./)?lockstep ([a-z].*))"),
      in_text("`lockstep ([a-z][^`]*)`");
  std::vector<Typed> found;
  bool fenced = false;
  int number = 0;
  for (const std::string& line : base::split_lines(base::read_file(file.string()))) {
    const std::string place = fmt::format("{}:{}", file.filename().string(), ++number);
    if (line.starts_with("```")) fenced = !fenced;
    std::smatch match;
    if (fenced && std::regex_search(line, match, at_start)) found.push_back(typed(place, match[2]));
    for (std::sregex_iterator it(line.begin(), line.end(), in_text), end; !fenced && it != end; ++it)
      found.push_back(typed(place, (*it)[1]));
  }
  return found;
}

// What a sample shows as a mistake that is corrected.
constexpr std::string_view kMistaken = "optim.learning_rate";

bool plain(const std::string& word) {
  return std::all_of(word.begin(), word.end(), [](char c) { return c >= 'a' && c <= 'z'; });
}

// Every command that stands in the documents exists, and has the options and the keys that it is given there.
TEST(Docs, CommandsAreUnderstood) {
  static const std::regex option("^(--[a-z][a-z0-9-]*)(=.*)?$"), key("^([a-z_]+\\.[a-z0-9_]+)=.*$");
  std::map<std::string, std::string> helps;
  base::TemporaryFolder folder;
  size_t count = 0;
  for (const fs::path& file : documents()) {
    for (const Typed& command : commands_in(file)) {
      SCOPED_TRACE(command.place);
      // `data show` and `bench generate` have options of their own.
      std::string name = command.name;
      static const std::set<std::string> with_parts = {"bench", "data", "explain", "tokenize"};
      if (with_parts.contains(name) && !command.words.empty() && plain(command.words[0]))
        name += " " + command.words[0];
      const auto [help, asked] = helps.try_emplace(name);
      if (asked)
        help->second = run_shell(folder.path(), "$L " + name + " --help").output + " --help --version ";
      EXPECT_EQ(help->second.find("is not a command"), std::string::npos);
      for (const std::string& word : command.words) {
        std::smatch match;
        if (std::regex_match(word, match, option)) {
          const std::regex whole(match[1].str() + "(?![a-z0-9-])");
          EXPECT_TRUE(std::regex_search(help->second, whole)) << "no option " << word;
        } else if (std::regex_match(word, match, key) && match[1].str() != kMistaken) {
          EXPECT_NE(recipe::find_key(match[1].str()), nullptr) << "no key " << word;
        }
      }
      ++count;
    }
  }
  EXPECT_GE(count, 200u);  // the patterns still find them
}

// The hashes of docs/exactness.md, where they are from the same kind of processor; equal ones are in any
// case.
TEST(Docs, TheHashesOfExactness) {
  const std::string text = base::read_file(std::string(LOCKSTEP_SOURCE) + "/docs/exactness.md");
  const std::regex small("\\$ small=\"(.*)\""), hash("\\b[0-9a-f]{32}\\b");
  std::smatch words;
  ASSERT_TRUE(std::regex_search(text, words, small));
  std::vector<std::string> printed;
  for (std::sregex_iterator it(text.begin(), text.end(), hash), end; it != end; ++it)
    printed.push_back(it->str());
  base::TemporaryFolder folder;
  const auto trained = [&](const std::string& name, const std::string& more) {
    const Outcome outcome =
        run_shell(folder.path(), fmt::format("$L train run.device=cpu {} run.name={} --json {} 2>/dev/null",
                                             words[1].str(), name, more));
    std::smatch found;
    return std::regex_search(outcome.output, found, hash) ? found.str() : outcome.output;
  };
  const std::string one = trained("a", "");
  EXPECT_EQ(one, trained("d", "--nproc 4"));
  const std::vector<std::string> found = {one, trained("h", "batch.slices=16"),
                                          trained("x", "run.exact=false --nproc 4"),
                                          trained("y", "run.exact=false --nproc 2"),
                                          trained("z", "run.exact=false --nproc 4 parallel.wire=bf16")};
  const std::string record = base::read_file(folder.path() + "/runs/a/record.json");
  if (record.find("AMD EPYC") == std::string::npos || record.find("x86-64-v4") == std::string::npos)
    GTEST_SKIP() << "printed for an AMD EPYC, x86-64-v4:\n" << record;
  EXPECT_EQ(printed, found);
}

}  // namespace
}  // namespace lockstep::cli
