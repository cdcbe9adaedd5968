#include <gtest/gtest.h>

#include "lockstep/base/refusal.h"
#include "lockstep/train.h"

namespace lockstep {
namespace {

using Words = std::vector<std::string>;

TEST(ProgramWords, AreThoseOfTheCommand) {
  const CommandLine line =
      read_command_line({"mine.toml", "run.steps=4", "--nproc", "2", "--max_restarts=1", "--run", "there",
                         "--resume=never", "--dry-run", "--standalone"},
                        {"run.steps=9"});
  EXPECT_EQ(line.recipe.file, "mine.toml");
  EXPECT_EQ(line.recipe.overrides, Words{"run.steps=4"})
      << "a file is used instead of the program's defaults";
  EXPECT_EQ(line.options.launch.nproc_per_node, "2");
  EXPECT_EQ(line.options.launch.max_restarts, "1");
  EXPECT_TRUE(line.options.launch.standalone);
  EXPECT_EQ(line.options.folder, "there");
  EXPECT_EQ(line.options.resume, "never");
  EXPECT_TRUE(line.options.dry_run);
}

TEST(ProgramWords, OverrideTheProgramsDefaults) {
  const CommandLine line = read_command_line({"run.steps=4"}, {"run.steps=9", "run.seed=3"});
  EXPECT_EQ(line.recipe.overrides, (Words{"run.steps=9", "run.seed=3", "run.steps=4"}));
  EXPECT_EQ(line.options.resume, "auto");
  EXPECT_EQ(recipe::read_recipe(line.recipe).recipe.run.steps, 4);
}

TEST(ProgramWords, OthersAreRefused) {
  for (const auto& [words, says] : std::vector<std::pair<Words, std::string>>{
           {{"--resum", "never"}, "did you mean --resume?"},
           {{"one.toml", "two.toml"}, "unexpected argument \"two.toml\""},
           {{"--nproc"}, "--nproc needs a value"},
           {{"--no-python"}, "unexpected argument"},  // for programs that lockstep launch starts
       }) {
    EXPECT_NE(base::refusal(109, [&] { read_command_line(words); }).find(says), std::string::npos)
        << words[0];
  }
}

}  // namespace
}  // namespace lockstep
