// Every kind of place under faults: whichever call of a submission fails, however it fails, and wherever the
// process is killed, the ledger names what exists, and nothing of it is left.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/base/temporary_folder.h"
#include "lockstep/jobs/testing.h"

namespace lockstep::jobs {
namespace {

const Say kSilent = [](const std::string&) {};

struct Killed {};  // thrown by a client: nothing behind it runs, as if the process were gone

// A place of any kind that keeps what the steps of a plan make, and answers its find and remove commands.
class AnyPlace {
 public:
  AnyPlace(const Target& target, const Plan& plan) : target_(target), plan_(plan) {}

  // How the call of one step goes; all others go well.
  size_t faulty_step = SIZE_MAX;
  Answer fault;
  bool made_all_the_same = false, dies = false;
  std::set<std::string> exists;  // labels

  Answer answer(const Command& command) {
    for (size_t k = 0; k < plan_.steps.size(); ++k) {
      if (plan_.steps[k].command.words != command.words) continue;
      const bool faulty = k == faulty_step;
      for (const Resource& one : plan_.steps[k].makes) {
        if (!faulty || made_all_the_same) exists.insert(one.label);
      }
      if (faulty && dies) throw Killed();
      return faulty ? fault : Answer{.output = said()};
    }
    for (const Step& step : plan_.steps) {
      for (Resource one : step.makes) {
        one.id = step.id_in ? step.id_in(said()) : one.id;
        if (find_command(one).words == command.words)
          return {.output = exists.contains(one.label) ? one.id + "\n" : ""};
        if (remove_command(one).words != command.words) continue;
        exists.erase(one.label);
        return {};
      }
    }
    ADD_FAILURE() << "nobody knows this command: " << shell_line(command.words);
    return {.code = 1};
  }

 private:
  std::string said() const {
    return std::string(target_.kind) == "lsf" ? "Job <17> is submitted to queue <gpu>.\n" : "17\n";
  }
  const Target& target_;
  const Plan& plan_;
};

struct Fault {
  const char* what;
  Answer answer;
  bool made, dies;
};
const Fault kFaults[] = {
    {"403", {.code = 1, .output = {}, .error = "403 PERMISSION_DENIED"}, false, false},
    {"409, an earlier try has made it", {.code = 1, .output = {}, .error = "409 exists"}, true, false},
    {"429", {.code = 1, .output = {}, .error = "429 rateLimitExceeded"}, false, false},
    {"500, made all the same", {.code = 1, .output = {}, .error = "500 backend error"}, true, false},
    {"no answer", {.code = 137, .output = {}, .error = {}, .timed_out = true}, false, false},
    {"no answer, made", {.code = 137, .output = {}, .error = {}, .timed_out = true}, true, false},
    {"killed before the call", {}, false, true},
    {"killed after the call", {}, true, true},
};

TEST(Faults, OfAnyCallAtAnyPlaceLeaveNothing) {
  for (const Target& target : target_table()) {
    for (const Fault& fault : kFaults) {
      const size_t steps = target.plan(job_for(target.kind)).steps.size();
      for (size_t k = 0; k < steps; ++k) {
        SCOPED_TRACE(fmt::format("{}, step {} of {}: {}", target.kind, k, steps, fault.what));
        base::TemporaryFolder folder;
        Ledger ledger(folder.path() + "/jobs");
        const Job job = job_for(target.kind, folder.path() + "/jobs/first-abc123");
        const Plan plan = target.plan(job);
        AnyPlace place(target, plan);
        place.faulty_step = k, place.fault = fault.answer, place.made_all_the_same = fault.made;
        place.dies = fault.dies;
        FakeClient client([&](const Command& command) { return place.answer(command); });
        if (fault.dies) {
          EXPECT_THROW(submit(job, plan, ledger, client, kSilent), Killed);
          const std::set<std::string> left = place.exists;
          const Submitted known = find_job(ledger, job.id);
          for (const std::string& label : left)
            EXPECT_TRUE(
                std::ranges::any_of(known.resources, [&](const Resource& r) { return r.label == label; }))
                << label << " exists and the ledger does not know it";
          place.dies = false;
          EXPECT_TRUE(stop(known, ledger, client).empty());
        } else {
          EXPECT_THROW(submit(job, plan, ledger, client, kSilent), base::IoError);
        }
        EXPECT_TRUE(place.exists.empty()) << *place.exists.begin() << " is left";
        EXPECT_TRUE(orphans(ledger, client).empty());
        EXPECT_TRUE(stop(find_job(ledger, job.id), ledger, client).empty()) << "a second time";
      }
    }
  }
}

// A client whose login has expired says nothing about what exists: "nothing is left" would be a lie.
TEST(Faults, APlaceThatDoesNotAnswerIsNotTakenForEmpty) {
  for (const Target& target : target_table()) {
    SCOPED_TRACE(target.kind);
    base::TemporaryFolder folder;
    Ledger ledger(folder.path() + "/jobs");
    const Job job = job_for(target.kind, folder.path() + "/jobs/first-abc123");
    const Plan plan = target.plan(job);
    AnyPlace place(target, plan);
    FakeClient answers([&](const Command& command) { return place.answer(command); });
    submit(job, plan, ledger, answers, kSilent);
    const size_t made = place.exists.size();
    for (const Answer& silence : {Answer{.code = 1, .error = "login has expired"}, Answer{.code = 127},
                                  Answer{.code = 137, .timed_out = true}}) {
      FakeClient silent([&](const Command&) { return silence; });
      const std::vector<Orphan> found = orphans(ledger, silent);
      EXPECT_EQ(found.size(), made);
      for (const Orphan& one : found) EXPECT_FALSE(one.sure) << one.resource.label;
    }
  }
}

// The disk fills up while the client works: what it has made is named, and how it goes.
TEST(Faults, ALedgerThatCannotBeWrittenAfterTheCall) {
  base::TemporaryFolder folder;
  Ledger ledger(folder.path() + "/jobs");
  const Job job = job_for("slurm", folder.path() + "/state");
  const Plan plan = find_target("slurm").plan(job);
  FakeClient client([&](const Command&) {
    std::filesystem::rename(ledger.folder(), folder.path() + "/away");
    std::ofstream(ledger.folder()) << "a file in its place";
    return Answer{.output = "17\n"};
  });
  try {
    submit(job, plan, ledger, client, kSilent);
    FAIL() << "it was submitted";
  } catch (const base::Error& error) {
    for (const char* words : {"Slurm job was made", "lockstep stop first-abc123"})
      EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace lockstep::jobs
