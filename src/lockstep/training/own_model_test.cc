// examples/own_model, a program of a torch::nn::Module: what the command can do, it can.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "lockstep/base/file.h"
#include "lockstep/base/ring.h"
#include "lockstep/base/temporary_folder.h"
#include "lockstep/base/text.h"

namespace lockstep::training {
namespace {

using Words = std::vector<std::string>;

std::vector<nlohmann::json> lines_of(const std::string& path) {
  std::vector<nlohmann::json> lines;
  for (const std::string& line : base::split_lines(base::try_read_file(path).text)) {
    auto parsed = nlohmann::json::parse(line, nullptr, false);
    if (!parsed.is_discarded()) lines.push_back(std::move(parsed));  // the last one may be half written
  }
  return lines;
}

// The program with words of its own, as a process of this one.
class Program {
 public:
  Program(const std::string& folder, const std::string& run, Words more)
      : run_(folder + "/" + run), output_(folder + "/output") {
    Words words = {LOCKSTEP_OWN_MODEL, "run.device=cpu", "checkpoint.every=4", "--run", run_};
    words.insert(words.end(), more.begin(), more.end());
    std::vector<char*> pointers;
    for (std::string& word : words) pointers.push_back(word.data());
    pointers.push_back(nullptr);
    pid_ = ::fork();
    if (pid_ != 0) return;
    const int output = ::open(output_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    ::dup2(output, STDOUT_FILENO);
    ::dup2(output, STDERR_FILENO);
    ::execv(LOCKSTEP_OWN_MODEL, pointers.data());
    ::_exit(127);
  }
  ~Program() {
    signal(SIGKILL);
    end();
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  // Until so many steps are in metrics.jsonl, or it has ended.
  void reach(size_t steps) {
    while (lines_of(run_ + "/metrics.jsonl").size() < steps && !has_ended())
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  void signal(int number) {
    if (!has_ended()) ::kill(pid_, number);
  }
  void kill_rank(int rank) const {
    ::kill(base::RingReader(run_ + "/trace/rank-" + std::to_string(rank) + ".ring").pid(), SIGKILL);
  }
  int end() {  // its exit code; 128 and the signal's number as a shell says it
    if (!ended_) ended_ = ::waitpid(pid_, &status_, 0) == pid_;
    return WIFEXITED(status_) ? WEXITSTATUS(status_) : 128 + WTERMSIG(status_);
  }
  std::string output() const { return base::try_read_file(output_).text; }
  std::string hash() const {  // "params_hash 86805238c33cd737..."
    const std::string text = output(), word = "params_hash ";
    const size_t at = text.rfind(word);
    return at == std::string::npos ? "none in: " + text : text.substr(at + word.size(), 32);
  }
  std::vector<int64_t> starts() const {  // the steps that it began or went on from
    std::vector<int64_t> steps;
    for (const nlohmann::json& line : lines_of(run_ + "/events.jsonl")) {
      if (line.value("event", "") == "start") steps.push_back(line.value("step", int64_t{-1}));
    }
    return steps;
  }

 private:
  bool has_ended() {
    if (!ended_) ended_ = ::waitpid(pid_, &status_, WNOHANG) == pid_;
    return ended_;
  }
  std::string run_, output_;
  pid_t pid_ = -1;
  int status_ = 0;
  bool ended_ = false;
};

TEST(OwnModelProgram, GivesTheSameBitsInEveryLayout) {
  const base::TemporaryFolder folder;
  Program alone(folder.path(), "alone", {"run.steps=12"});
  ASSERT_EQ(alone.end(), 0) << alone.output();
  const std::string expected = alone.hash();
  EXPECT_NE(alone.output().find("of new pictures are recognised"), std::string::npos) << alone.output();
  EXPECT_EQ(lines_of(folder.path() + "/alone/metrics.jsonl").size(), 13u) << "twelve steps, an evaluation";
  EXPECT_TRUE(std::filesystem::exists(folder.path() + "/alone/checkpoints/step-00000012/manifest.json"));
  const std::vector<Words> layouts = {
      {"--nproc", "2"},
      {"--nproc", "2", "parallel.zero=3"},
      {"--nproc", "2", "parallel.pipeline=2"},
      {"--nproc", "2", "parallel.engine=gloo"},
      {"memory.recompute=full", "run.threads=2"},
  };
  for (Words layout : layouts) {
    SCOPED_TRACE(base::join(layout, " "));
    layout.insert(layout.end(), {"run.steps=12", "--resume", "never"});
    Program other(folder.path(), "other", layout);
    EXPECT_EQ(other.end(), 0) << other.output();
    EXPECT_EQ(other.hash(), expected);
  }
}

TEST(OwnModelProgram, KilledOrStoppedItGoesOnToTheSameBits) {
  const base::TemporaryFolder folder;
  const Words steps = {"run.steps=200"}, ranks = {"run.steps=200", "--nproc", "2"};
  Program whole(folder.path(), "whole", steps);
  ASSERT_EQ(whole.end(), 0) << whole.output();
  const std::string expected = whole.hash();
  {
    Program killed(folder.path(), "alone", steps);
    killed.reach(20);
    killed.signal(SIGKILL);
    EXPECT_EQ(killed.end(), 128 + SIGKILL) << killed.output();
  }
  {
    Program stopped(folder.path(), "alone", steps);
    stopped.reach(40);
    stopped.signal(SIGTERM);
    EXPECT_EQ(stopped.end(), 75) << stopped.output();
  }
  Program done(folder.path(), "alone", steps);
  EXPECT_EQ(done.end(), 0) << done.output();
  EXPECT_EQ(done.hash(), expected);
  ASSERT_EQ(done.starts().size(), 3u);
  EXPECT_GE(done.starts()[1], 4);
  EXPECT_GT(done.starts()[2], done.starts()[1]);

  // A rank that dies is started again by the launcher, which is this same program.
  Program together(folder.path(), "ranks", ranks);
  together.reach(20);
  together.kill_rank(1);
  EXPECT_EQ(together.end(), 0) << together.output();
  EXPECT_EQ(together.hash(), expected);
  EXPECT_EQ(together.starts().size(), 2u) << together.output();
}

TEST(OwnModelProgram, RefusesAsTheCommandDoes) {
  const base::TemporaryFolder folder;
  const std::vector<std::pair<Words, std::string>> rows = {
      {{"optim.learning_rate=1"}, "did you mean optim.lr?"},
      {{"--nprox", "2"}, "did you mean --nproc?"},
      {{"--nproc", "3"}, "[LS0154]"},  // the recipe has two strands
      {{"--nproc", "2", "parallel.tensor=2"}, "parallel.tensor"},
  };
  for (const auto& [words, says] : rows) {
    Program program(folder.path(), "refused", words);
    EXPECT_EQ(program.end(), 2) << words[0] << "\n" << program.output();
    EXPECT_NE(program.output().find(says), std::string::npos) << program.output();
  }
  EXPECT_FALSE(std::filesystem::exists(folder.path() + "/refused/config.toml"));
}

}  // namespace
}  // namespace lockstep::training
