// The ledger is right, however a submission ends: every way a client can fail, and a process killed between
// two lines.
#include "lockstep/jobs/submit.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/temporary_folder.h"
#include "lockstep/jobs/testing.h"

namespace lockstep::jobs {
namespace {

const Say kSilent = [](const std::string&) {};

// A place with two things to make, of which it has those in `exists`.
struct Cloud {
  std::vector<std::string> exists;
  bool has(const std::string& name) const {
    return std::find(exists.begin(), exists.end(), name) != exists.end();
  }
  void lose(const std::string& name) { std::erase(exists, name); }
  // cloud make|find|remove NAME
  Answer answer(const Command& command) {
    const std::string &verb = command.words[1], &name = command.words[2];
    if (verb == "make") exists.push_back(name);
    if (verb == "find") return {.output = has(name) ? name + "\n" : ""};
    if (verb == "remove") lose(name);
    return {.output = name + "\n"};
  }
};

Plan plan_of(const Job& job) {
  Plan plan;
  plan.files = {{"job.sh", "true\n"}, {"token", "hush\n", true}};
  for (const char* name : {"disk", "machine"}) {
    Resource resource{.job = job.id,
                      .label = name,
                      .find = {"cloud", "find", name},
                      .remove = {"cloud", "remove", name},
                      .id = name};
    plan.steps.push_back({.command = {{"cloud", "make", name}}, .makes = {resource}});
  }
  return plan;
}

struct Scene {
  base::TemporaryFolder folder;
  Ledger ledger{folder.path() + "/jobs"};
  Job job = small_job("slurm", folder.path() + "/jobs/first-abc123");
  Cloud cloud;
  std::string states() const {
    std::string text;
    for (const Submitted& one : ledger.jobs()) {
      text += one.submission == Submitted::Submission::complete ? "complete"
              : one.submission == Submitted::Submission::failed ? "failed"
                                                                : "going on";
      for (const Resource& resource : one.resources)
        text += " " + resource.label +
                (resource.state == Resource::State::gone   ? ":gone"
                 : resource.state == Resource::State::made ? ":made"
                                                           : ":asked");
    }
    return text;
  }
};

TEST(Submit, WritesTheLedgerBeforeItAsks) {
  Scene scene;
  FakeClient client([&](const Command& command) {
    const bool makes = command.words[1] == "make", disk = command.words[2] == "disk";
    EXPECT_TRUE(!makes ||
                scene.states() == (disk ? "going on disk:asked" : "going on disk:made machine:asked"));
    return scene.cloud.answer(command);
  });
  const Submitted job = submit(scene.job, plan_of(scene.job), scene.ledger, client, kSilent);
  EXPECT_EQ(scene.states(), "complete disk:made machine:made");
  EXPECT_EQ(job.id_of("machine"), "machine");
  EXPECT_EQ(job.place.kind, "slurm");
  EXPECT_EQ(base::read_file(scene.job.state_folder + "/job.sh"), "true\n");
  const auto mode = std::filesystem::status(scene.job.state_folder + "/token").permissions();
  EXPECT_EQ(mode, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
}

// How the call that makes the machine ends, whether it is made all the same, and whether the place can then
// be asked and told.
struct Failure {
  const char* what;
  Answer answer;
  bool made, can_find, can_remove;
  const char* states;  // of the ledger afterwards
  const char* says;
};

TEST(Submit, AFailureLeavesNothingThatTheLedgerDoesNotKnow) {
  const Failure rows[] = {
      {"403",
       {.code = 1, .output = {}, .error = "ERROR: 403 Permission denied"},
       false,
       true,
       true,
       "failed disk:gone machine:gone",
       "403 Permission denied"},
      {"409, an earlier try has made it",
       {.code = 1, .output = {}, .error = "409 already exists"},
       true,
       true,
       true,
       "failed disk:gone machine:gone",
       "409"},
      {"429",
       {.code = 1, .output = {}, .error = "429 rateLimitExceeded"},
       false,
       true,
       true,
       "failed disk:gone machine:gone",
       "429"},
      {"500, made all the same",
       {.code = 1, .output = {}, .error = "500 backend error"},
       true,
       true,
       true,
       "failed disk:gone machine:gone",
       "500"},
      {"timed out, not made",
       {.code = 137, .output = {}, .error = {}, .timed_out = true},
       false,
       true,
       true,
       "failed disk:gone machine:gone",
       "did not answer"},
      {"timed out, made",
       {.code = 137, .output = {}, .error = {}, .timed_out = true},
       true,
       true,
       true,
       "failed disk:gone machine:gone",
       "did not answer"},
      {"not installed", {.code = 127}, false, true, true, "failed disk:gone machine:gone", "not installed"},
      {"made, and cannot be removed",
       {.code = 1, .output = {}, .error = "500"},
       true,
       true,
       false,
       "failed disk:asked machine:asked",
       "lockstep stop first-abc123"},
      {"nobody answers any more",
       {.code = 1, .output = {}, .error = "500"},
       true,
       false,
       false,
       "failed disk:asked machine:asked",
       "could not be removed"},
      {"killed", {.code = 137}, true, true, true, "failed disk:gone machine:gone", "exit code 137"},
  };
  for (const Failure& row : rows) {
    SCOPED_TRACE(row.what);
    Scene scene;
    FakeClient client([&](const Command& command) -> Answer {
      const bool machine = command.words[1] == "make" && command.words[2] == "machine";
      if (machine && row.made) scene.cloud.exists.push_back("machine");
      if (machine) return row.answer;
      if (command.words[1] == "find" && !row.can_find) return {.code = 1, .output = {}, .error = "500"};
      if (command.words[1] == "remove" && !row.can_remove) return {.code = 1, .output = {}, .error = "500"};
      return scene.cloud.answer(command);
    });
    try {
      submit(scene.job, plan_of(scene.job), scene.ledger, client, kSilent);
      FAIL();
    } catch (const base::IoError& error) {
      EXPECT_EQ(error.number(), 726);
      EXPECT_NE(std::string(error.what()).find(row.says), std::string::npos) << error.what();
    }
    std::string expected = row.states;
    // What was made is still "made" where it could not be removed.
    if (const size_t at = expected.find("disk:asked"); at != std::string::npos)
      expected.replace(at, 10, "disk:made");
    EXPECT_EQ(scene.states(), expected);
    EXPECT_EQ(scene.cloud.exists.empty(), row.can_remove);
    // When the place answers again, stop finishes it, once and for all.
    FakeClient later([&](const Command& command) { return scene.cloud.answer(command); });
    EXPECT_TRUE(stop(find_job(scene.ledger, "first"), scene.ledger, later).empty());
    EXPECT_EQ(scene.cloud.exists, std::vector<std::string>{});
    EXPECT_EQ(scene.states(), "failed disk:gone machine:gone");
  }
}

// The submitting process is killed inside each call of the client; another one finds what it left.
TEST(Submit, KilledAtAnyCallItIsFoundAndRemoved) {
  for (const std::string when : {"disk before", "disk after", "machine before", "machine after"}) {
    SCOPED_TRACE(when);
    Scene scene;
    const std::string cloud_file = scene.folder.path() + "/cloud";
    const pid_t child = ::fork();
    if (child == 0) {
      FakeClient client([&](const Command& command) -> Answer {
        const std::string& name = command.words[2];
        if (when == name + " before") ::raise(SIGKILL);
        std::ofstream(cloud_file, std::ios::app) << name << "\n";
        if (when == name + " after") ::raise(SIGKILL);
        return {.output = name};
      });
      submit(scene.job, plan_of(scene.job), scene.ledger, client, kSilent);
      ::_exit(0);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status));
    std::ifstream made(cloud_file);
    for (std::string name; made >> name;) scene.cloud.exists.push_back(name);
    FakeClient client([&](const Command& command) { return scene.cloud.answer(command); });
    const Submitted job = find_job(scene.ledger, "first");
    EXPECT_EQ(status_of(job, client).state, State::interrupted);
    EXPECT_EQ(orphans(scene.ledger, client).size(), scene.cloud.exists.size());
    EXPECT_TRUE(stop(find_job(scene.ledger, "first"), scene.ledger, client).empty());
    EXPECT_TRUE(scene.cloud.exists.empty());
    EXPECT_TRUE(orphans(scene.ledger, client).empty());
    EXPECT_TRUE(stop(find_job(scene.ledger, "first"), scene.ledger, client).empty());
  }
}

TEST(Ledger, AHalfLineIsSkippedAndNothingIsGluedToIt) {
  Scene scene;
  FakeClient client([&](const Command& command) { return scene.cloud.answer(command); });
  submit(scene.job, plan_of(scene.job), scene.ledger, client, kSilent);
  std::ofstream(scene.ledger.file(), std::ios::app) << R"({"event": "gone", "job": "first-ab)";
  EXPECT_EQ(scene.states(), "complete disk:made machine:made");
  EXPECT_EQ(scene.ledger.unreadable_lines(), 1);
  EXPECT_TRUE(stop(find_job(scene.ledger, "first"), scene.ledger, client).empty());
  EXPECT_EQ(scene.states(), "complete disk:gone machine:gone");
}

TEST(Ledger, HostileLinesAreCountedNotObeyed) {
  Scene scene;
  scene.folder.write(
      "jobs/ledger.jsonl",
      "[]\n{}\n\xff\xfe\n{\"event\": 7, \"job\": {}}\n{\"event\":\"has\",\"job\":\"x\"}\nnull\n");
  EXPECT_TRUE(scene.ledger.jobs().empty());
  EXPECT_EQ(scene.ledger.unreadable_lines(), 5);
}

// An option for the client may have commas and blanks; a ledger of an older version has lists as one text.
TEST(Ledger, GivesListsBackAsTheyWere) {
  Scene scene;
  Submitted job;
  job.id = "first-aaaaaa", job.name = "first";
  job.place.name = job.place.kind = "ssh";
  job.place.hosts = {"a", "b"};
  job.place.options = {"-o", "Ciphers=x,y", "-o", "ProxyCommand=ssh -W %h:%p jump"};
  job.place.environment = {"LIST=1,2", "EMPTY="};
  scene.ledger.open_job(job);
  const Submitted back = find_job(scene.ledger, "first");
  EXPECT_EQ(back.place.options, job.place.options);
  EXPECT_EQ(back.place.environment, job.place.environment);
  EXPECT_EQ(back.place.hosts, job.place.hosts);
  std::ofstream(scene.ledger.file(), std::ios::app)
      << R"({"event":"job","job":"old-bbbbbb","name":"old","time":"","folder":"","process":1,)"
      << R"("place":{"name":"ssh","kind":"ssh","hosts":"a,b"}})"
      << "\n";
  EXPECT_EQ(find_job(scene.ledger, "old").place.hosts, job.place.hosts);
}

// Its number is another process's by now: what it had asked for is nobody's, and costs money.
TEST(Ledger, ANumberThatIsUsedAgainKeepsNoSubmissionAlive) {
  Scene scene;
  Submitted job;
  job.id = "first-abc123", job.name = "first", job.place.name = job.place.kind = "slurm";
  scene.ledger.open_job(job);
  FakeClient client([&](const Command& command) { return scene.cloud.answer(command); });
  EXPECT_EQ(status_of(find_job(scene.ledger, "first"), client).state, State::queued);
  std::string text = base::read_file(scene.ledger.file());
  const std::string mine = base::birth_of(::getpid()).to_text();
  ASSERT_NE(text.find(mine), std::string::npos) << text;
  text.replace(text.find(mine), mine.size(), mine + "7");
  std::ofstream(scene.ledger.file()) << text;
  EXPECT_EQ(status_of(find_job(scene.ledger, "first"), client).state, State::interrupted);
}

TEST(Ledger, RefusesToAskWhereItCannotBeWritten) {
  Scene scene;
  scene.folder.write("jobs", "a file in its place");
  FakeClient client([&](const Command& command) { return scene.cloud.answer(command); });
  EXPECT_THROW(submit(scene.job, plan_of(scene.job), scene.ledger, client, kSilent), base::Error);
  EXPECT_TRUE(client.asked.empty());
}

TEST(Jobs, AreFoundByIdOrByTheNewestOfAName) {
  Scene scene;
  for (const char* id : {"first-aaaaaa", "first-bbbbbb"}) {
    Submitted job;
    job.id = id;
    job.name = "first";
    job.place.name = job.place.kind = "slurm";
    scene.ledger.open_job(job);
  }
  EXPECT_EQ(find_job(scene.ledger, "first").id, "first-bbbbbb");
  EXPECT_EQ(find_job(scene.ledger, "first-aaaaaa").id, "first-aaaaaa");
  EXPECT_THROW(find_job(scene.ledger, "second"), base::ConfigError);
}

TEST(ProcessClient, TakesOutputInputAndTimeOuts) {
  ProcessClient client;
  const Answer echoed =
      client.run({.words = {"sh", "-c", "cat; echo wrong >&2; exit 3"}, .input = std::string(1 << 20, 'x')});
  EXPECT_EQ(echoed.code, 3);
  EXPECT_EQ(echoed.output.size(), size_t{1} << 20);
  EXPECT_EQ(echoed.error, "wrong\n");
  const Command slow{.words = {"sh", "-c", "sleep 100 & wait"}, .patience_s = 1};
  const Answer late = client.run(slow);
  EXPECT_TRUE(late.timed_out);
  EXPECT_EQ(late.complaint(slow), "sh did not answer within 1 s");
  EXPECT_EQ(client.run({.words = {"no-such-program"}}).code, 127);
  EXPECT_EQ(client.run({.words = {"true"}, .input = std::string(1 << 20, 'x')}).code, 0);  // it does not read
}

}  // namespace
}  // namespace lockstep::jobs
