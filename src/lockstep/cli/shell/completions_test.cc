// What shells offer while a command is typed, and manual pages: both are made of the commands' own
// declarations.
#include <filesystem>

#include "lockstep/base/temporary_folder.h"
#include "lockstep/cli/testing.h"

namespace lockstep::cli {
namespace {

TEST(Completions, OfferWhatFits) {
  const base::TemporaryFolder folder;
  std::filesystem::create_directories(folder.path() + "/runs/first");
  struct Offer {
    std::string typed, offered;  // all of it
  };
  const Offer offers[] = {
      {"tra", "train\n"},
      {"train --nproc-", "--nproc-per-node\n"},
      {"train optim.nam", "optim.name=\n"},
      {"train optim.name=ada", "optim.name=adamw\n"},
      {"train run.exact=", "run.exact=false\nrun.exact=true\n"},
      {"train parallel.zer", "parallel.zero=\n"},
      {"train no.such=", ""},
      {"eval optim.nam", "optim.name=\n"},
      {"top optim.nam", ""},
      {"explain optim.warm", "optim.warmup\n"},
      {"generate runs/f", "runs/first\n"},
      {"plot runs/", "runs/first\n"},
      {"train --resume runs/", "runs/first\n"},
      {"train --profile ''", ""},
      {"metrics runs/first --out ''", ""},
      {"generate --max-tokens ''", ""},
      {"train --quiet optim.nam", "optim.name=\n"},
      {"help tra", "train\n"},
      {"completions z", "zsh\n"},
      {"nonsense x", ""},
      {"no such command at all --x", ""},
  };
  for (const Offer& offer : offers) {
    const Outcome outcome = run_shell(folder.path(), "$L --complete " + offer.typed);
    EXPECT_EQ(outcome.code, 0) << offer.typed;
    EXPECT_EQ(outcome.output, offer.offered) << offer.typed;
  }
  // Whatever is typed so far, nothing is begun.
  EXPECT_EQ(run_shell(folder.path(), "$L --complete train ''; $L --complete init ''; ls")
                .output.find("recipe.toml"),
            std::string::npos);
}

TEST(Completions, WorkInBash) {
  const base::TemporaryFolder folder;
  const auto typed = [&](const std::string& line) {
    return run_shell(folder.path(),
                     "mkdir -p b; ln -sf $L b/lockstep; cat >t.sh <<'END'\nPATH=$PWD/b:$PATH\n"
                     "source <(lockstep completions bash)\nCOMP_LINE='" +
                         line + "' COMP_POINT=${#COMP_LINE}\nCOMP_POINT=" + std::to_string(line.size()) +
                         "\n_lockstep\necho \"${COMPREPLY[*]}\"\nEND\nbash t.sh")
        .output;
  };
  EXPECT_EQ(typed("lockstep verif"), "verify\n");
  EXPECT_EQ(typed("lockstep train optim.name=li"), "lion\n");  // bash cuts words at '='
  EXPECT_EQ(typed("lockstep train optim.nam"), "optim.name=\n");
  std::filesystem::create_directories(folder.path() + "/runs/$(touch told) x");
  EXPECT_EQ(typed("lockstep why runs/"), "runs/\\$\\(touch\\ told\\)\\ x\n");  // not a command
}

TEST(Completions, KnowThreeShells) {
  const base::TemporaryFolder folder;
  expect_rows(folder.path(), {{"$L completions bash", 0, "complete -o bashdefault"},
                              {"$L completions zsh", 0, "#compdef lockstep"},
                              {"$L completions fish", 0, "complete -c lockstep"},
                              {"$L completions", 2, "expected one of bash, zsh, fish"},
                              {"$L completions tcsh", 2, "\"tcsh\" is not a shell that is known here"}});
}

TEST(Man, HasAPageForEveryCommand) {
  const base::TemporaryFolder folder;
  expect_rows(folder.path(), {{"$L man", 0, ".TH LOCKSTEP 1"},
                              {"$L man train", 0, "\\-\\-resume"},
                              {"$L man launch", 0, ".SH OPTIONS"},
                              {"$L man trian", 2, "is not a command"},
                              {"$L man --out pages && ls pages", 0, "lockstep-train.1"},
                              {"$L man --out /dev/null/x", 1, "/dev/null"}});
  // As many as the help lists, and the page of all.
  EXPECT_EQ(run_shell(folder.path(),
                      "n=$($L help | sed -n '/^commands/,/^examples/p' | grep -c '^  [a-z]'); "
                      "m=$(ls pages | wc -l); echo $((m - n))")
                .output,
            "1\n");
}

}  // namespace
}  // namespace lockstep::cli
