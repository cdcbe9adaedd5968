// lockstep audit: a run's log against its chain, and some of its steps against their own replay.
#include <fmt/format.h>
#include <sys/random.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/cli/commands.h"
#include "lockstep/cli/print.h"
#include "lockstep/cli/report_json.h"
#include "lockstep/cli/see/run_view.h"
#include "lockstep/replay/audit.h"
#include "lockstep/terminal/terminal.h"

namespace lockstep::cli {

namespace {

using nlohmann::json;

struct Options {
  std::string run, key, make_key;
  std::vector<std::string> words;
  int64_t steps = 5, seed = -1;
  bool json = false;
};

int64_t random_seed() {
  uint32_t seed = 0;
  if (::getrandom(&seed, sizeof(seed), 0) != sizeof(seed)) seed = static_cast<uint32_t>(::getpid());
  return seed;
}

json to_json(const replay::ChainCheck& check) {
  return {{"links", check.links},         {"signatures", check.signatures}, {"first_step", check.first_step},
          {"last_step", check.last_step}, {"last_link", check.last_link},   {"key", check.key},
          {"remark", check.remark},       {"problem", check.problem}};
}

void print_chain(const replay::ChainCheck& check, size_t width) {
  const auto say = [&](const std::string& text) { print("{}\n", base::hanging(text, width, 2)); };
  say(check.problem.empty()
          ? fmt::format(
                "chain: {} links to step {} are whole{}; the last is {}", check.links, check.last_step,
                check.signatures > 0 ? fmt::format(", {} signatures by {}", check.signatures, check.key) : "",
                check.last_link)
          : "chain: broken: " + check.problem);
  if (!check.remark.empty()) say("  " + check.remark);
}

int make_key(const std::string& path) {
  run::make_signing_key(path);
  const run::SigningKey key(path);
  print(
      "{} signs (name it in LOCKSTEP_CHAIN_KEY and keep it to yourself), {}.pub checks (give it to others); "
      "fingerprint {}\n",
      path, path, key.fingerprint());
  return 0;
}

std::vector<replay::ReplayedStep> replay_some(const Options& options, const std::string& folder, int64_t seed,
                                              json& remarks, std::string& inexact) {
  const auto logged = replay::logged_steps(folder);
  std::vector<int64_t> steps;
  for (const auto& [step, line] : logged) steps.push_back(step);
  std::vector<replay::ReplayedStep> done;
  replay::Replayer replayer(folder, options.words, [](const std::string& line) { remark("{}\n", line); });
  inexact = replayer.inexact();
  if (!inexact.empty()) remarks.push_back(inexact);
  for (const int64_t step : replay::picked_steps(steps, options.steps, static_cast<uint64_t>(seed))) {
    if (done.empty()) {
      for (const std::string& change : replayer.changes()) remarks.push_back("bits may differ: " + change);
    }
    done.push_back(replay::replay_and_compare(replayer, step, logged.at(step)));
    if (!options.json)
      print("step {}: replayed from step {}, {}\n", step, done.back().from,
            done.back().same() ? "the same bits" : "OTHER BITS than logged");
  }
  return done;
}

int audit(const Options& options) {
  const std::string folder = wanted_run(options.run, "audit");
  std::optional<run::SigningKey> key;
  if (!options.key.empty()) key.emplace(options.key);
  const replay::ChainCheck check = replay::check_chain(folder, key);
  const terminal::Terminal screen = terminal::terminal_of(STDOUT_FILENO);
  if (!options.json) print_chain(check, screen.is_tty ? screen.width - 1 : 100);
  const int64_t seed = options.seed >= 0 ? options.seed : random_seed();
  json out{{"run", folder}, {"chain", to_json(check)}, {"seed", seed}, {"steps", json::array()}},
      remarks = json::array();
  std::string problem = check.problem, inexact;
  if (problem.empty() && options.steps > 0) {
    if (!options.json) print("steps picked with --seed {}\n", seed);
    for (const replay::ReplayedStep& one : replay_some(options, folder, seed, remarks, inexact)) {
      out["steps"].push_back({{"step", one.step},
                              {"from", one.from},
                              {"same", one.same()},
                              {"loss_hex", one.replayed.loss_hex},
                              {"params_hash", one.replayed.params_hash}});
      if (!one.same() && problem.empty())
        problem = fmt::format("step {} gives other bits than the log says{}{}", one.step,
                              inexact.empty() ? "" : "; but ", inexact);
    }
  }
  out["remarks"] = remarks, out["passed"] = problem.empty();
  if (options.json) report_json(out);
  if (!options.json)
    for (const json& one : remarks) print("{}\n", one.get<std::string>());
  if (problem.empty()) {
    if (!options.json) print("passed\n");
    return 0;
  }
  const bool chain = !check.problem.empty();
  throw base::RunError(chain ? 338 : 349, fmt::format("{} does not pass: {}", folder, problem));
}

}  // namespace

int audit_command(Arguments& arguments) {
  Options options;
  arguments.positional("RUN", options.run,
                       "a run folder, or the name of a run in runs/, trained with log.chain=true");
  arguments.rest("KEY=VALUE", options.words, "keys that change no bit, such as run.device=cpu");
  arguments.option("--steps", options.steps,
                   "how many steps to replay, picked at random; 0: only check the chain");
  arguments.option("--seed", options.seed, "picks the same steps again");
  arguments.option("--key", options.key, "the public key, or the secret, that links must be signed with");
  arguments.option("--make-key", options.make_key,
                   "only make a key pair: FILE signs, FILE.pub is for auditors");
  arguments.flag("--json", options.json, "print JSON");
  arguments.example("lockstep audit --make-key run-key.pem",
                    "once; then LOCKSTEP_CHAIN_KEY=run-key.pem lockstep train ... log.chain=true");
  arguments.example("lockstep audit runs/first --steps 5 --key run-key.pem.pub", "as a third party does");
  if (!arguments.parse()) return 0;
  if (!options.make_key.empty()) return make_key(options.make_key);
  if (options.run.empty())
    throw base::ConfigError(109, "audit needs a run: lockstep audit runs/first --steps 5");
  if (options.steps < 0) throw base::ConfigError(109, "--steps: expected 0 or more");
  return audit(options);
}

}  // namespace lockstep::cli
