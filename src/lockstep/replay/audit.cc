#include "lockstep/replay/audit.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/text.h"
#include "lockstep/run/folder/run_folder.h"

namespace lockstep::replay {

namespace {

using nlohmann::json;
using run::Genesis;
using run::SigningKey;

std::string text_of(const json& line, const char* key) {
  return line.contains(key) && line[key].is_string() ? line[key].get<std::string>() : "";
}

// config.toml may differ where it changes nothing that is computed.
std::string recipe_problem(const Genesis& genesis, const std::string& folder) {
  try {
    recipe::RecipeSource source;
    source.text = genesis.recipe;
    run::refuse_changes(recipe::read_recipe(source), folder);
    return "";
  } catch (const base::ConfigError& error) {
    return fmt::format("config.toml is not the recipe that the chain began with: {}", error.what());
  }
}

class Follower {
 public:
  Follower(const Genesis& genesis, std::string link, const SigningKey* key, ChainCheck& check)
      : genesis_(genesis), link_(std::move(link)), key_(key), check_(check) {}

  void line(int64_t number, const std::string& text) {
    const json line = json::parse(text, nullptr, false);
    const std::string sealed = run::sealed_part(line);
    if (sealed.empty() || !line["step"].is_number_integer()) return;
    const int64_t step = line["step"].get<int64_t>();
    const std::string said = text_of(line, "chain");
    if (said.empty() && check_.links == 0 && step <= genesis_.first_step) return;  // from before it began
    if (said.empty()) return complain(number, step, "has no link");
    if (said != run::next_link(link_, sealed))
      return complain(number, step,
                      "does not follow from the lines before it: it, or one before it, was changed, "
                      "removed or inserted");
    const std::string signature = text_of(line, "signature");
    if (!genesis_.key_kind.empty() && signature.empty()) return complain(number, step, "is not signed");
    if (key_ != nullptr && !key_->has_signed(said, signature))
      return complain(number, step, "was not signed with this key");
    check_.signatures += key_ != nullptr;
    ++check_.links;
    check_.last_step = step;
    link_ = check_.last_link = said;
  }

 private:
  void complain(int64_t number, int64_t step, const std::string& what) {
    check_.problem = fmt::format("line {} of metrics.jsonl, of step {}, {}", number, step, what);
  }
  const Genesis& genesis_;
  std::string link_;
  const SigningKey* key_;
  ChainCheck& check_;
};

// Lines off the end leave a chain that is whole as far as it goes; checkpoints and events say how far it
// went.
std::string end_problem(const std::string& folder, const ChainCheck& check, const recipe::Recipe& recipe) {
  const int64_t every = std::max<int64_t>(1, recipe.log.every);
  const int64_t saved = run::look_at(folder).step, expected = saved - saved % every;
  if (expected <= check.last_step || expected <= check.first_step) return "";
  return fmt::format(
      "metrics.jsonl ends with step {}, but there is a checkpoint of step {}: lines were removed",
      check.last_step, saved);
}

}  // namespace

ChainCheck check_chain(const std::string& run_folder, const std::optional<SigningKey>& key) {
  const std::string path = run_folder + "/chain.json";
  std::error_code error;
  if (!std::filesystem::exists(path, error))
    throw base::ConfigError(
        338, fmt::format("{} has no chain; train with log.chain=true to have one", run_folder));
  const std::string text = base::read_file(path);
  const Genesis genesis = Genesis::from_text(text);
  ChainCheck check;
  check.first_step = genesis.first_step;
  check.last_link = run::sha256_hex(text);
  check.problem = recipe_problem(genesis, run_folder);
  if (!check.problem.empty()) return check;
  std::optional<SigningKey> own;
  if (!key && !genesis.public_pem.empty()) own = SigningKey::from_public_pem(genesis.public_pem);
  const SigningKey* judge = key ? &*key : own ? &*own : nullptr;
  if (key && genesis.key_kind.empty()) {
    check.problem = "the chain is not signed, though a key was given";
    return check;
  }
  if (judge != nullptr) check.key = fmt::format("{} {}", judge->kind(), judge->fingerprint());
  if (genesis.key_kind.empty())
    check.remark = "links are not signed: whoever can write the folder could have made the chain again";
  if (own)
    check.remark =
        "signatures were checked with the public key in the run folder itself; give yours with --key";
  if (judge == nullptr && !genesis.key_kind.empty())
    check.remark = "links are signed with a secret; give it with --key to check the signatures";
  Follower follower(genesis, check.last_link, judge, check);
  std::ifstream lines(run_folder + "/metrics.jsonl");
  int64_t number = 0;
  for (std::string line; check.problem.empty() && std::getline(lines, line);) follower.line(++number, line);
  recipe::RecipeSource source;
  source.text = genesis.recipe;
  if (check.problem.empty())
    check.problem = end_problem(run_folder, check, recipe::read_recipe(source).recipe);
  return check;
}

std::vector<int64_t> picked_steps(const std::vector<int64_t>& steps, int64_t count, uint64_t seed) {
  std::vector<int64_t> picked;
  std::mt19937_64 random(seed);
  std::sample(steps.begin(), steps.end(), std::back_inserter(picked), count, random);
  std::sort(picked.begin(), picked.end());
  return picked;
}

bool ReplayedStep::same() const {
  return (logged.loss_hex.empty() || logged.loss_hex == replayed.loss_hex) &&
         (logged.params_hash.empty() || logged.params_hash == replayed.params_hash);
}

ReplayedStep replay_and_compare(Replayer& replayer, int64_t step, const Logged& logged) {
  ReplayedStep result{.step = step, .from = replayer.nearest(step).step, .logged = logged, .replayed = {}};
  const SeenStep seen = replayer.step(step, Look::result);
  result.replayed = {.loss_hex = fmt::format("{:a}", seen.loss), .params_hash = seen.params_hash};
  return result;
}

}  // namespace lockstep::replay
