// lockstep init: the questions on a terminal (script gives it one), and the recipes that follow from the
// answers.
#include <filesystem>

#include "lockstep/base/file.h"
#include "lockstep/base/temporary_folder.h"
#include "lockstep/cli/shell/init_questions.h"
#include "lockstep/cli/testing.h"
#include "lockstep/recipe/schema.h"

namespace lockstep::cli {
namespace {

TEST(InitQuestions, AnswersBecomeARecipe) {
  const base::TemporaryFolder folder;
  folder.write("book.txt", "once");
  const std::string book = folder.path() + "/book.txt";
  const struct {
    std::vector<std::string> answers;
    std::vector<std::string> holds;  // "run.steps = 400" by key and value
    std::string complaint;
  } rows[] = {
      {{"", "", "", ""}, {"run.steps=400", "data.path=\"\""}, ""},
      {{book, "", "124m", "7"}, {"run.steps=7", "model.family=\"gpt2\"", "model.preset=\"124m\""}, ""},
      {{"none.txt", book, folder.path(), "lora", "9"},
       {"tune.method=\"lora\"", "model.from=\"" + folder.path() + "\"", "data.path=\"" + book + "\""},
       "\"none.txt\" does not exist"},
      {{"", "", "huge", "1b", "many", "3"},
       {"model.family=\"llama\"", "run.steps=3"},
       "expected one of tiny, 124m, 1b, 8b"},
      {{"", "", "tiny", "0", "1"}, {"run.steps=1"}, "above 0"},
  };
  for (const auto& row : rows) {
    std::string said;
    size_t next = 0;
    const auto chosen = ask_for_recipe(
        "mine",
        [&](const std::string&, const std::string&) -> std::optional<std::string> {
          return next < row.answers.size() ? std::optional(row.answers[next++]) : std::nullopt;
        },
        [&](const std::string& why) { said += why + "\n"; });
    ASSERT_TRUE(chosen) << row.answers[0];
    EXPECT_EQ(next, row.answers.size());
    EXPECT_NE(said.find(row.complaint), std::string::npos) << said;
    folder.write("made.toml", short_recipe(*chosen));
    const recipe::Resolved resolved = recipe::read_recipe({.file = folder.path() + "/made.toml"});
    EXPECT_EQ(resolved.recipe.run.name, "mine");
    for (const std::string& held : row.holds) {
      const size_t equals = held.find('=');
      EXPECT_EQ(recipe::value_text(*recipe::find_key(held.substr(0, equals)), resolved.recipe),
                held.substr(equals + 1));
    }
  }
  EXPECT_FALSE(ask_for_recipe(
      "mine", [](const std::string&, const std::string&) { return std::nullopt; },
      [](const std::string&) {}));
}

TEST(Init, AsksOnATerminalAndNowhereElse) {
  const base::TemporaryFolder folder;
  const std::string on_terminal = "script -qec \"$L init a.toml\" /dev/null";
  expect_rows(
      folder.path(),
      {{"printf '\\n\\n\\n3\\n' | " + on_terminal, 0, "How many steps?"},
       {"cat a.toml", 0, "steps = 3"},
       {"$L train a.toml model.layers=1 model.hidden=32 model.heads=2 -q && ls runs/a", 0, "metrics.jsonl"},
       {"$L init a.toml </dev/null", 2, "already exists"},
       {"rm a.toml; printf '\\n\\004' | " + on_terminal, 2, "LS0730"},
       {"ls a.toml", 2, "No such file"},
       {"$L init b.toml --schema </dev/null && head -n 1 b.toml", 0, "#:schema ./lockstep.schema.json"},
       {"head -c 1 lockstep.schema.json", 0, "{"},
       {"$L train b.toml run.steps=1 model.layers=1 model.hidden=32 model.heads=2 -q", 0, ""}});
}

// Long explanations go through the pager, where there is a terminal; what it gets is painted.
TEST(Pager, ExplainUsesItOnATerminal) {
  const base::TemporaryFolder folder;
  expect_rows(
      folder.path(),
      {{"PAGER='sed s/^/paged:/' TERM=xterm script -qec \"$L explain optim\" /dev/null </dev/null", 0,
        "paged:"},
       {"PAGER='head -n 1' TERM=xterm script -qec \"$L explain\" /dev/null </dev/null", 0, "[run]"},
       {"PAGER=cat TERM=xterm script -qec \"$L explain optim.lr\" /dev/null </dev/null", 0, "optim.lr"},
       {"PAGER=no-such-pager TERM=xterm script -qec \"$L explain optim.lr\" /dev/null </dev/null", 0,
        "not found"},
       {"PAGER='sed s/^/paged:/' $L explain optim.lr | grep -c paged || true", 0, "0"}});
}

TEST(Doctor, FixesWhatACommandCanFix) {
  const base::TemporaryFolder folder;
  expect_rows(folder.path(), {{"$L doctor --fix </dev/null", 2, "add --yes"},
                              {"env -u HOME $L doctor --fix --yes | head -40", 0, "home: set HOME"},
                              {"OMP_PROC_BIND=true $L doctor --json", 0, "\"command\""}});
}

}  // namespace
}  // namespace lockstep::cli
