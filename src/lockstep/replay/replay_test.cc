// Steps of a run again, with its bits; what is seen inside them; and logs that were tampered with.
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <cmath>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>

#include "lockstep/base/file.h"
#include "lockstep/base/refusal.h"
#include "lockstep/base/temporary_folder.h"
#include "lockstep/base/text.h"
#include "lockstep/replay/audit.h"
#include "lockstep/train.h"

namespace lockstep::replay {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

struct Quiet : TrainObserver {
  void remark(const std::string&) override {}
  void warn(const std::string&) override {}
};

std::string trained(const std::string& folder, std::vector<std::string> more = {}) {
  std::vector<std::string> words = {
      "run.device=cpu",     "run.threads=1",   "run.steps=9",        "model.layers=2",
      "model.hidden=16",    "model.heads=2",   "data.seq_len=8",     "batch.global=4",
      "batch.slices=2",     "batch.strands=2", "log.eval_every=4",   "optim.warmup=2",
      "log.eval_batches=1", "log.chain=true",  "checkpoint.every=4", "checkpoint.keep=9"};
  words.insert(words.end(), more.begin(), more.end());
  Quiet quiet;
  train(recipe::read_recipe({.overrides = words}), {.observer = &quiet, .folder = folder});
  return folder;
}

TEST(Replay, EveryStepHasTheBitsThatTheRunLogged) {
  const base::TemporaryFolder place;
  const std::string run = trained(place.path() + "/run");
  const auto logged = logged_steps(run);
  ASSERT_EQ(logged.size(), 9u);
  Replayer replayer(run, {});
  for (const int64_t step : {1, 2, 9, 5, 4, 6, 3}) {
    const ReplayedStep one = replay_and_compare(replayer, step, logged.at(step));
    EXPECT_EQ(one.replayed.loss_hex, logged.at(step).loss_hex) << step;
    EXPECT_EQ(one.replayed.params_hash, logged.at(step).params_hash) << step;
    EXPECT_TRUE(one.same());
  }
  EXPECT_TRUE(replayer.changes().empty());
}

TEST(Replay, BeginsAtTheNearestCheckpointAndSaysWhere) {
  const base::TemporaryFolder place;
  const std::string run = trained(place.path() + "/run");
  const Replayer replayer(run, {});
  const std::pair<int64_t, int64_t> rows[] = {{1, 0}, {4, 0}, {5, 4}, {8, 4}, {9, 8}};
  for (const auto& [step, start] : rows) EXPECT_EQ(replayer.nearest(step).step, start) << step;
  for (const int64_t step : {0, 10, -3}) EXPECT_NE(base::refusal(350, [&] { replayer.nearest(step); }), "");
  // Without any, from the beginning; a damaged one is passed over.
  base::write_file_durable(run + "/checkpoints/step-00000008/model-00001-of-00001.safetensors", "nothing");
  Replayer damaged(run, {});
  EXPECT_EQ(damaged.step(9, Look::result).params_hash, logged_steps(run).at(9).params_hash);
  fs::remove_all(run + "/checkpoints");
  Replayer bare(run, {});
  EXPECT_EQ(bare.nearest(9).step, 0);
  EXPECT_EQ(bare.step(9, Look::result).params_hash, logged_steps(run).at(9).params_hash);
}

// Tensor and context ranks add in an order of their own, unless the recipe fixes it: no log of theirs is
// called false without that.
TEST(Replay, SaysWhichLayoutsOneDeviceCannotRepeat) {
  const base::TemporaryFolder place;
  const std::string run = trained(place.path() + "/run"), config = base::read_file(run + "/config.toml");
  const auto said = [&](std::vector<std::pair<std::string, std::string>> changes) {
    std::string text = config;
    for (const auto& [from, to] : changes) {
      const size_t at = text.find("\n" + from + "\n");
      EXPECT_NE(at, std::string::npos) << from;
      text.replace(at + 1, from.size(), to);
    }
    base::write_file_durable(run + "/config.toml", text);
    return Replayer(run, {}).inexact();
  };
  EXPECT_EQ(said({}), "");
  EXPECT_NE(said({{"tensor = 1", "tensor = 2"}}).find("the run had 2 tensor ranks"), std::string::npos);
  EXPECT_NE(said({{"context = 1", "context = 4"}}).find("4 context ranks"), std::string::npos);
  EXPECT_EQ(said({{"pipeline = 1", "pipeline = 2"}, {"zero = \"0\"", "zero = \"3\""}}), "");
  EXPECT_EQ(said({{"tensor = 1", "tensor = 2"}, {"product_strands = 1", "product_strands = 2"}}), "");
}

TEST(Replay, LooksInsideWithoutChangingTheStep) {
  const base::TemporaryFolder place;
  const std::string run = trained(place.path() + "/run");
  Replayer replayer(run, {});
  const SeenStep seen = replayer.step(6, Look::blocks);
  EXPECT_EQ(seen.params_hash, logged_steps(run).at(6).params_hash);
  ASSERT_EQ(seen.blocks.size(), 4u);  // embedding, two layers, head
  double squares = 0;
  for (const SeenBlock& block : seen.blocks) {
    EXPECT_GT(block.before.count, 0) << block.name;
    EXPECT_GT(block.gradient.norm(), 0) << block.name;
    EXPECT_GT(block.update.norm(), 0) << block.name;
    EXPECT_NE(block.before.hash, block.after.hash) << block.name;
    EXPECT_EQ(block.gradient.nonfinite + block.out.nonfinite, 0);
    squares += block.gradient.squares;
  }
  EXPECT_NEAR(std::sqrt(squares), seen.grad_norm, 1e-5 * seen.grad_norm) << "the run's own norm";
  EXPECT_TRUE(first_nonfinite(seen).empty());
  EXPECT_EQ(replayer.step(7, Look::result).params_hash, logged_steps(run).at(7).params_hash)
      << "the step that was looked at counts";
}

TEST(Replay, SaysWhatDiffersFirst) {
  const base::TemporaryFolder place;
  const std::string one = trained(place.path() + "/one");
  const std::string other = trained(place.path() + "/other", {"optim.lr=0.004"});
  const std::string seeded = trained(place.path() + "/seeded", {"run.seed=7"});
  const auto seen = [](const std::string& run, int64_t step) {
    return Replayer(run, {}).step(step, Look::blocks);
  };
  EXPECT_TRUE(difference_of(seen(one, 3), seen(one, 3)).same);
  // The same until the first update.
  const Difference update = difference_of(seen(one, 1), seen(other, 1));
  EXPECT_FALSE(update.same);
  EXPECT_TRUE(update.first.starts_with("the update of ")) << update.first;
  EXPECT_TRUE(difference_of(seen(one, 2), seen(other, 2)).first.starts_with("the weights of "));
  EXPECT_TRUE(difference_of(seen(one, 1), seen(seeded, 1)).first.starts_with("the weights of "));
  EXPECT_EQ(difference_of(seen(one, 1), seen(seeded, 1)).blocks.size(), 4u);
  SeenStep bent = seen(one, 3);
  bent.values[2].numbers.hash ^= 1;
  EXPECT_NE(difference_of(seen(one, 3), bent).first.find(bent.values[2].place()), std::string::npos);
}

TEST(Replay, FindsTheSliceThatIsNotFinite) {
  SeenStep step;
  for (const int slice : {0, 1, 1, 2}) {
    SeenValue value;
    value.slice = slice, value.pass = "forward", value.block = "layer 1", value.segment = "qkv",
    value.value = "qkv";
    const float numbers[] = {1, slice == 1 ? INFINITY : 2, slice == 1 ? NAN : 3};
    value.numbers = numbers_of(numbers, device::DType::f32, 3);
    step.values.push_back(value);
  }
  const auto found = first_nonfinite(step);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0]->slice, 1);
  EXPECT_EQ(found[0]->numbers.nonfinite, 2);
  EXPECT_DOUBLE_EQ(found[0]->numbers.largest, 1);
}

TEST(Replay, OtherKeysAreRefusedAndFreeOnesAreNot) {
  const base::TemporaryFolder place;
  const std::string run = trained(place.path() + "/run", {"parallel.zero=1"});
  EXPECT_NE(base::refusal(160, [&] { Replayer(run, {"optim.lr=1"}); }).find("optim.lr"), std::string::npos);
  EXPECT_NE(base::refusal(109, [&] { Replayer(run, {"nonsense"}); }), "");
  Replayer threads(run, {"run.threads=2"});
  EXPECT_EQ(threads.step(5, Look::result).params_hash, logged_steps(run).at(5).params_hash);
}

// --- the chain

std::vector<std::string> lines_of(const std::string& run) {
  return base::split_lines(base::read_file(run + "/metrics.jsonl"));
}
void write_lines(const std::string& run, const std::vector<std::string>& lines) {
  base::write_file_durable(run + "/metrics.jsonl", base::join(lines, "\n") + "\n");
}

struct KeyInUse {
  explicit KeyInUse(const std::string& path) { ::setenv("LOCKSTEP_CHAIN_KEY", path.c_str(), 1); }
  ~KeyInUse() { ::unsetenv("LOCKSTEP_CHAIN_KEY"); }
};

TEST(Chain, IsWholeAndTheSameAfterARestart) {
  const base::TemporaryFolder place;
  const std::string run = trained(place.path() + "/run");
  const ChainCheck whole = check_chain(run, std::nullopt);
  EXPECT_EQ(whole.problem, "");
  EXPECT_EQ(whole.links, 12) << "nine steps, evaluations behind 4, 8 and 9";
  EXPECT_EQ(whole.last_step, 9);
  EXPECT_NE(whole.remark, "") << "not signed";
  // Nothing behind step 4 was kept: the run goes on from there and comes to the same last link.
  for (const char* later : {"/checkpoints/step-00000008", "/checkpoints/step-00000009"})
    fs::remove_all(run + later);
  trained(run);
  EXPECT_EQ(check_chain(run, std::nullopt).last_link, whole.last_link);
}

TEST(Chain, TamperingIsFound) {
  const base::TemporaryFolder place;
  const std::string run = trained(place.path() + "/run");
  const std::vector<std::string> whole = lines_of(run);
  const auto changed = [](std::string line, const char* key, const json& value) {
    json parsed = json::parse(line);
    parsed[key] = value;
    return parsed.dump();
  };
  using Lines = std::vector<std::string>;
  const std::tuple<const char*, std::function<void(Lines&)>, bool> rows[] = {
      {"a loss", [&](Lines& l) { l[3] = changed(l[3], "loss", 0.5); }, true},
      {"its bits", [&](Lines& l) { l[3] = changed(l[3], "loss_hex", "0x1p-1"); }, true},
      {"weights", [&](Lines& l) { l[0] = changed(l[0], "params_hash", std::string(32, '0')); }, true},
      {"an evaluation", [&](Lines& l) { l[4] = changed(l[4], "eval_loss", 0.1); }, true},
      {"a line is gone", [&](Lines& l) { l.erase(l.begin() + 2); }, true},
      {"two are swapped", [&](Lines& l) { std::swap(l[1], l[2]); }, true},
      {"one comes twice", [&](Lines& l) { l.insert(l.begin() + 2, l[1]); }, true},
      {"a link is gone",
       [&](Lines& l) {
         auto j = json::parse(l[5]);
         j.erase("chain");
         l[5] = j.dump();
       },
       true},
      {"the end is gone", [&](Lines& l) { l.resize(3); }, true},
      {"the beginning is gone", [&](Lines& l) { l.erase(l.begin()); }, true},
      {"times may change", [&](Lines& l) { l[3] = changed(l[3], "step_ms", 1); }, false},
      {"lines of others may come", [&](Lines& l) { l.insert(l.begin(), R"({"note": 1})"); }, false}};
  for (const auto& [what, tamper, found] : rows) {
    Lines lines = whole;
    tamper(lines);
    write_lines(run, lines);
    EXPECT_EQ(!check_chain(run, std::nullopt).problem.empty(), found) << what;
  }
  write_lines(run, whole);
  EXPECT_EQ(check_chain(run, std::nullopt).problem, "");
  std::string recipe = base::read_file(run + "/config.toml");
  recipe.replace(recipe.find("seed = "), 8, "seed = 9");
  base::write_file_durable(run + "/config.toml", recipe);
  EXPECT_NE(check_chain(run, std::nullopt).problem.find("config.toml"), std::string::npos);
}

TEST(Chain, AWholeChainOfInventedStepsFailsItsReplay) {
  const base::TemporaryFolder place;
  const std::string run = trained(place.path() + "/run");
  std::vector<std::string> lines = lines_of(run);
  std::string link = run::sha256_hex(base::read_file(run + "/chain.json"));
  for (std::string& text : lines) {  // as somebody who knows how chains are made
    json line = json::parse(text);
    if (line["step"] == 6 && line.contains("loss")) line["loss"] = 0.25, line["loss_hex"] = "0x1p-2";
    link = run::next_link(link, run::sealed_part(line));
    line["chain"] = link;
    text = line.dump();
  }
  write_lines(run, lines);
  EXPECT_EQ(check_chain(run, std::nullopt).problem, "");
  Replayer replayer(run, {});
  EXPECT_FALSE(replay_and_compare(replayer, 6, logged_steps(run).at(6)).same());
  EXPECT_TRUE(replay_and_compare(replayer, 7, logged_steps(run).at(7)).same());
}

TEST(Chain, SignaturesTellWhoMadeIt) {
  const base::TemporaryFolder place;
  const std::string pem = place.path() + "/key.pem", secret = place.path() + "/secret",
                    other = place.path() + "/other.pem";
  run::make_signing_key(pem), run::make_signing_key(other);
  EXPECT_NE(base::refusal(110, [&] { run::make_signing_key(pem); }), "");
  base::write_file_durable(secret, "0123456789abcdef0123456789abcdef\n");
  ::chmod(secret.c_str(), 0600);
  for (const auto& [signs, checks] : {std::pair(pem, pem + ".pub"), std::pair(secret, secret)}) {
    const KeyInUse key(signs);
    const std::string run = trained(place.path() + "/run" + fs::path(signs).filename().string());
    const ChainCheck good = check_chain(run, run::SigningKey(checks));
    EXPECT_EQ(good.problem, "") << signs;
    EXPECT_EQ(good.signatures, 12);
    EXPECT_NE(check_chain(run, run::SigningKey(other + ".pub")).problem, "") << "another's key";
    std::vector<std::string> lines = lines_of(run);
    json line = json::parse(lines[2]);
    std::string signature = line["signature"];
    signature[5] = signature[5] == '0' ? '1' : '0';
    line["signature"] = signature;
    lines[2] = line.dump();
    write_lines(run, lines);
    EXPECT_NE(check_chain(run, run::SigningKey(checks)).problem.find("step 3"), std::string::npos);
  }
}

TEST(Chain, KeysThatCannotBeUsedAreRefused) {
  const base::TemporaryFolder place;
  const std::string path = place.path() + "/key";
  const auto refused = [&](const std::string& text, mode_t mode) {
    base::write_file_durable(path, text);
    ::chmod(path.c_str(), mode);
    return base::refusal(337, [&] { run::SigningKey key(path); });
  };
  EXPECT_NE(base::refusal(337, [&] { run::SigningKey key(place.path() + "/none"); }), "");
  EXPECT_NE(refused("short", 0600).find("16"), std::string::npos);
  EXPECT_NE(refused("0123456789abcdef0123456789abcdef", 0644).find("chmod 600"), std::string::npos);
  EXPECT_NE(refused("-----BEGIN PRIVATE KEY-----\nnothing\n-----END PRIVATE KEY-----\n", 0600), "");
  EXPECT_NE(refused("-----BEGIN PUBLIC KEY-----\nnothing\n-----END PUBLIC KEY-----\n", 0644), "");
  EXPECT_NE(base::refusal(338, [&] { check_chain(place.path(), std::nullopt); }), "");
}

TEST(Chain, PicksTheSameStepsForTheSameSeed) {
  const std::vector<int64_t> steps = {10, 20, 30, 40, 50, 60};
  EXPECT_EQ(picked_steps(steps, 3, 5), picked_steps(steps, 3, 5));
  EXPECT_EQ(picked_steps(steps, 3, 5).size(), 3u);
  EXPECT_EQ(picked_steps(steps, 99, 5), steps);
  EXPECT_NE(picked_steps(steps, 3, 5), picked_steps(steps, 3, 6));
}

}  // namespace
}  // namespace lockstep::replay
