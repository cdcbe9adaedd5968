#include "lockstep/watch/verdict.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>

namespace lockstep::watch {
namespace {

using watch::Phase;

constexpr uint16_t kAllReduce = 100, kAllGather = 102, kSend = 106, kRecv = 107;

GroupFacts data_group(int64_t entered, bool inside, double since, std::vector<int> members = {0, 1, 2, 3}) {
  return {.name = "reduce.data.0",
          .members = std::move(members),
          .entered = entered,
          .inside = inside,
          .since = since,
          .call = "reduce b7",
          .op = kAllReduce,
          .bytes = 64};
}

RankFacts rank(int number, std::vector<GroupFacts> groups, double last_seconds = 0) {
  RankFacts facts;
  facts.rank = number, facts.host = number < 3 ? "a" : "b", facts.phase = Phase::train;
  facts.phase_seconds = 1000, facts.groups = std::move(groups);
  facts.last = "load s3", facts.last_seconds = last_seconds;
  return facts;
}

// Ranks 0 to 2 wait inside call 812 for so long; rank 3 has not come.
std::vector<RankFacts> one_missing(double since) {
  std::vector<RankFacts> all;
  for (int r = 0; r < 3; ++r) all.push_back(rank(r, {data_group(812, true, since)}, since));
  all.push_back(rank(3, {data_group(811, false, since)}, since));
  return all;
}

struct Case {
  const char* what;
  std::vector<RankFacts> facts;
  Budgets budgets;
  std::string kind;  // empty: no verdict
  std::vector<int> culprits;
  std::string says;
};

std::vector<RankFacts> changed(std::vector<RankFacts> facts,
                               const std::function<void(std::vector<RankFacts>&)>& change) {
  change(facts);
  return facts;
}

GroupFacts nccl(int64_t entered, double since) {
  GroupFacts group = data_group(entered, since > 0, since);
  group.enqueues = true;
  return group;
}

GroupFacts pair(const char* name, std::vector<int> members, int64_t entered, double since) {
  GroupFacts group = data_group(entered, since > 0, since, std::move(members));
  group.name = name;
  return group;
}

std::vector<Case> cases() {
  return {
      {"nobody has done anything", {}, {}, "", {}, ""},
      {"all compute",
       {rank(0, {data_group(5, false, 90)}, 90), rank(1, {data_group(5, false, 90)}, 90)},
       {},
       "",
       {},
       ""},
      {"a wait within the budget", one_missing(29), {}, "", {}, ""},
      {"never entered",
       one_missing(31),
       {},
       "frozen",
       {3},
       "rank 3 (b) never entered reduce b7, seq 812, group data; ranks 0 1 2 have been waiting there for 31 "
       "s; its last "
       "instruction: load s3"},
      {"a timeout of one's own", one_missing(6), {.hang = 5}, "frozen", {3}, "for 6 s"},
      {"a longer one", one_missing(31), {.hang = 60}, "", {}, ""},
      {"usually slow", changed(one_missing(31), [](auto& f) { f[3].usual_seconds = 4; }), {}, "", {}, ""},
      {"ten times the usual",
       changed(one_missing(41), [](auto& f) { f[3].usual_seconds = 4; }),
       {},
       "frozen",
       {3},
       ""},
      {"it moves on",
       changed(one_missing(31), [](auto& f) { f[3].last_seconds = 1; }),
       {},
       "slow",
       {3},
       "is slow to enter"},
      {"stopped while it starts, and nobody waits yet",
       changed({rank(0, {}), rank(1, {})},
               [](auto& f) { f[1].phase = Phase::start, f[1].stopped = true, f[1].stopped_seconds = 31; }),
       {},
       "frozen",
       {1},
       "has been stopped (SIGSTOP) for 31 s, at start"},
      {"stopped for a moment",
       changed({rank(0, {}), rank(1, {})},
               [](auto& f) { f[1].phase = Phase::start, f[1].stopped = true, f[1].stopped_seconds = 5; }),
       {},
       "",
       {},
       ""},
      {"stopped for a moment, when the run shall end",
       changed({rank(0, {}), rank(1, {})},
               [](auto& f) { f[1].phase = Phase::start, f[1].stopped = true, f[1].stopped_seconds = 1; }),
       {.stopped = 0.5},
       "frozen",
       {1},
       "has been stopped (SIGSTOP)"},
      {"frozen with its cgroup",
       changed(one_missing(31), [](auto& f) { f[3].stopped = f[3].frozen = true; }),
       {},
       "frozen",
       {3},
       "its process is stopped (a frozen cgroup)"},
      {"a disk that does not answer",
       changed(one_missing(31), [](auto& f) { f[3].in_kernel = true; }),
       {},
       "frozen",
       {3},
       "a disk or file server does not respond"},
      {"a disk that does not answer a writer, long before a save counts as hung",
       changed(one_missing(31),
               [](auto& f) { f[3].phase = Phase::save, f[3].phase_seconds = 31, f[3].writer_seconds = 30; }),
       {},
       "slow",
       {3},
       "rank 3 (b) has been at save for 31 s: a thread of it has been blocked in the kernel (state D) for 30 "
       "s: a "
       "disk or file server does not respond"},
      {"a writer's disk that is slow for a moment",
       changed(one_missing(31),
               [](auto& f) { f[3].phase = Phase::save, f[3].phase_seconds = 31, f[3].writer_seconds = 29; }),
       {},
       "",
       {},
       ""},
      {"a writer's disk where nobody waits in a call",
       changed({rank(0, {}), rank(1, {})},
               [](auto& f) { f[1].phase = Phase::save, f[1].phase_seconds = 6, f[1].writer_seconds = 5; }),
       {.hang = 5},
       "slow",
       {1},
       "a disk or file server does not respond; the run continues when it does"},
      {"a writer's disk that never answers",
       changed(
           one_missing(1900),
           [](auto& f) { f[3].phase = Phase::save, f[3].phase_seconds = 1900, f[3].writer_seconds = 1899; }),
       {},
       "frozen",
       {3},
       "it has been at save for 1900 s; a thread of it has been blocked in the kernel (state D) for 1899 s"},
      {"a writer in the background of a rank that hangs",
       changed(one_missing(31), [](auto& f) { f[3].writer_seconds = 31; }),
       {},
       "frozen",
       {3},
       "ranks 0 1 2 have been waiting there for 31 s; a thread of it has "
       "been blocked in the kernel (state D) for 31 s: a disk or file server does not respond; its last "
       "instruction: "
       "load s3"},
      {"stopped",
       changed(one_missing(31), [](auto& f) { f[3].stopped = true; }),
       {},
       "frozen",
       {3},
       "stopped (SIGSTOP)"},
      {"stopped inside a call that another shares with it",
       changed(one_missing(31),
               [](auto& f) {
                 f[2].groups = {data_group(811, false, 31), pair("reduce.node.2", {2, 3}, 7, 32)};
                 f[3].groups.push_back(pair("reduce.node.2", {2, 3}, 7, 32));
                 f[3].stopped = true;
               }),
       {},
       "frozen",
       {3},
       "rank 3 (b) stopped (SIGSTOP) inside reduce b7, seq 7, group node; rank 2 has been waiting there for "
       "32 s"},
      {"two stopped inside one call, which a third waits in",
       changed({rank(0, {data_group(7, true, 31, {0, 1, 2})}, 31),
                rank(1, {data_group(7, true, 31, {0, 1, 2})}, 31),
                rank(2, {data_group(7, true, 31, {0, 1, 2})}, 31)},
               [](auto& f) { f[1].stopped = f[2].stopped = true; }),
       {},
       "frozen",
       {1, 2},
       "rank 1 (a) and rank 2 (a) stopped (SIGSTOP) inside reduce b7, seq 7"},
      {"all are stopped",
       changed(
           {rank(0, {data_group(7, true, 31, {0, 1})}, 31), rank(1, {data_group(7, true, 31, {0, 1})}, 31)},
           [](auto& f) { f[0].stopped = f[1].stopped = true; }),
       {},
       "frozen",
       {0, 1},
       "ranks 0 1 stopped (SIGSTOP) inside reduce b7, seq 7, group data for 31 s"},
      {"a rank that is held up by it is waited for",
       {rank(0, {pair("reduce.node.0", {0, 1}, 8, 31)}, 31),
        rank(1, {pair("reduce.node.0", {0, 1}, 7, 0), pair("reduce.between.1", {1, 3}, 4, 32)}, 32),
        rank(2, {pair("reduce.node.2", {2, 3}, 8, 31)}, 31),
        changed({rank(3, {pair("reduce.node.2", {2, 3}, 7, 0), pair("reduce.between.1", {1, 3}, 4, 32)}, 32)},
                [](auto& f) { f[0].stopped = true; })[0]},
       {},
       "frozen",
       {3},
       "rank 3 (b) stopped (SIGSTOP) inside reduce b7, seq 4, group between; rank 1 has been waiting there "
       "for 32 s"},
      {"dead comes first",
       changed(one_missing(1), [](auto& f) { f[3].alive = false; }),
       {},
       "dead",
       {3},
       "rank 3 (b) is dead; its last instruction: load s3"},
      {"nothing known of it",
       changed(one_missing(601), [](auto& f) { f.pop_back(); }),
       {},
       "frozen",
       {3},
       "rank 3 never entered"},
      {"it may be starting", changed(one_missing(31), [](auto& f) { f.pop_back(); }), {}, "", {}, ""},
      {"two culprits",
       changed(one_missing(31), [](auto& f) { f[2].groups[0].entered = 811, f[2].groups[0].inside = false; }),
       {},
       "frozen",
       {2, 3},
       "rank 2 (a) and rank 3 (b) never entered reduce b7, seq 812"},
      {"saving",
       changed(one_missing(31), [](auto& f) { f[3].phase = Phase::save, f[3].phase_seconds = 31; }),
       {},
       "",
       {},
       ""},
      {"saving for ever",
       changed(one_missing(1900), [](auto& f) { f[3].phase = Phase::save, f[3].phase_seconds = 1900; }),
       {},
       "frozen",
       {3},
       "it has been at save for 1900 s"},
      {"saves take long here",
       changed(one_missing(1900),
               [](auto& f) {
                 f[3].phase = Phase::save, f[3].phase_seconds = 1900, f[3].usual_phase_seconds = 200;
               }),
       {},
       "",
       {},
       ""},
      {"a hang timeout is not for saves",
       changed(one_missing(31), [](auto& f) { f[3].phase = Phase::save, f[3].phase_seconds = 31; }),
       {.hang = 5},
       "",
       {},
       ""},
      {"stopped while saving",
       changed(one_missing(31),
               [](auto& f) { f[3].phase = Phase::save, f[3].phase_seconds = 31, f[3].stopped = true; }),
       {},
       "frozen",
       {3},
       "stopped (SIGSTOP)"},
      {"patience for training is patience for saves",
       changed(one_missing(1900), [](auto& f) { f[3].phase = Phase::save, f[3].phase_seconds = 1900; }),
       {.hang = 2000},
       "",
       {},
       ""},
      {"evaluating",
       changed(one_missing(100), [](auto& f) { f[3].phase = Phase::evaluate, f[3].phase_seconds = 100; }),
       {},
       "",
       {},
       ""},
      {"evaluating for ever",
       changed(one_missing(700), [](auto& f) { f[3].phase = Phase::evaluate, f[3].phase_seconds = 700; }),
       {},
       "frozen",
       {3},
       "it has been at evaluate"},
      {"the one it waits for is the culprit",
       // 0 waits for 1 in one group, 1 for 2 in another; 2 does nothing.
       {rank(0, {pair("a.x.0", {0, 1}, 4, 40)}, 40),
        rank(1, {pair("a.x.0", {0, 1}, 3, 0), pair("b.y.1", {1, 2}, 7, 50)}, 50),
        rank(2, {pair("b.y.1", {1, 2}, 6, 0)}, 50)},
       {},
       "frozen",
       {2},
       "rank 2 (a) never entered reduce b7, seq 7, group y; rank 1 has been waiting there for 50 s"},
      {"a circle",
       {rank(0, {pair("a.x.0", {0, 1}, 4, 40), pair("b.y.0", {0, 1}, 8, 0)}, 40),
        rank(1, {pair("a.x.0", {0, 1}, 3, 0), pair("b.y.0", {0, 1}, 9, 40)}, 40)},
       {},
       "deadlock",
       {0, 1},
       "ranks have been waiting for each other for 40 s: rank 0 (a) waits for rank 1 in reduce b7, seq 4"},
      {"all inside",
       {rank(0, {data_group(5, true, 35, {0, 1})}, 35), rank(1, {data_group(5, true, 34, {0, 1})}, 34)},
       {},
       "stuck",
       {},
       "ranks 0 1 have all been inside reduce b7, seq 5, group data for 34 s"},
      {"all inside, not for long",
       {rank(0, {data_group(5, true, 35, {0, 1})}, 35), rank(1, {data_group(5, true, 4, {0, 1})}, 4)},
       {},
       "",
       {},
       ""},
      {"stopped inside",
       changed(
           {rank(0, {data_group(5, true, 35, {0, 1})}, 35), rank(1, {data_group(5, true, 34, {0, 1})}, 34)},
           [](auto& f) { f[1].stopped = true; }),
       {},
       "frozen",
       {1},
       "rank 1 (a) stopped (SIGSTOP) inside reduce b7"},
      {"different calls",
       changed(
           {rank(0, {data_group(5, true, 35, {0, 1})}, 35), rank(1, {data_group(5, true, 34, {0, 1})}, 34)},
           [](auto& f) { f[1].groups[0].op = kAllGather, f[1].groups[0].call = "gather b2"; }),
       {},
       "mismatch",
       {0, 1},
       "rank 0 (a) reached reduce b7, seq 5, group data and rank 1 (a) reached gather b2"},
      {"on a device: one has not come",
       changed({rank(0, {nccl(20, 35)}, 35), rank(1, {nccl(20, 36)}, 36), rank(2, {nccl(20, 35)}, 35),
                rank(3, {nccl(19, 0)}, 40)},
               [](auto& f) { f[3].reached = "backward b7 s1 of step 12"; }),
       {},
       "frozen",
       {3},
       "rank 3 (b) never entered reduce b7, seq 20, group data; ranks 0 1 2 have been waiting there for 36 "
       "s; its "
       "device has "
       "reached backward b7 s1 of step 12"},
      {"on a device: the host that was to enqueue it is stopped",
       changed({rank(0, {nccl(20, 35)}, 35), rank(1, {nccl(20, 36)}, 36), rank(2, {nccl(20, 35)}, 35),
                rank(3, {nccl(19, 40)}, 40)},
               [](auto& f) { f[3].stopped = true; }),
       {},
       "frozen",
       {3},
       "its process is stopped (SIGSTOP)"},
      {"on a device: it is slow",
       {rank(0, {nccl(20, 35)}, 35), rank(1, {nccl(20, 36)}, 36), rank(2, {nccl(20, 35)}, 35),
        rank(3, {nccl(19, 0)}, 1)},
       {},
       "slow",
       {3},
       "is slow to enter"},
      {"on a device: all are in it",
       {rank(0, {nccl(20, 35)}, 35), rank(1, {nccl(20, 36)}, 36), rank(2, {nccl(20, 35)}, 35),
        rank(3, {nccl(20, 40)}, 40)},
       {},
       "stuck",
       {},
       "all been inside reduce b7, seq 20, group data for 35 s"},
      {"on a device: steps are that long",
       changed({rank(0, {nccl(20, 35)}, 35), rank(1, {nccl(20, 36)}, 36), rank(2, {nccl(20, 35)}, 35),
                rank(3, {nccl(19, 0)}, 40)},
               [](auto& f) {
                 for (auto& one : f) one.usual_step = 20;
               }),
       {},
       "",
       {},
       ""},
      {"on a device that marks nothing: it is stuck",
       {rank(0, {nccl(-1, 0)}, 35), rank(1, {nccl(-1, 0)}, 36), rank(2, {nccl(-1, 0)}, 35),
        rank(3, {nccl(-1, 0)}, 40)},
       {},
       "stuck",
       {},
       "nothing has finished for 35 s"},
      {"two ends of a link",
       changed({rank(0, {pair("pipe.forward.0", {0, 1}, 5, 35)}, 35),
                rank(1, {pair("pipe.forward.0", {0, 1}, 5, 34)}, 34)},
               [](auto& f) { f[0].groups[0].op = kSend, f[1].groups[0].op = kRecv; }),
       {},
       "stuck",
       {},
       "without progress"},
      {"two ends of a link, of which one is blocked by a disk",
       changed(
           {rank(0, {pair("pipe.forward.0", {0, 1}, 5, 35)}, 35),
            rank(1, {pair("pipe.forward.0", {0, 1}, 5, 34)}, 34)},
           [](auto& f) { f[0].groups[0].op = kSend, f[1].groups[0].op = kRecv, f[1].writer_seconds = 33; }),
       {},
       "frozen",
       {1},
       "for 34 s without progress: a thread of rank 1 (a) has been blocked in the kernel (state D) for 33 s"},
      {"a stage that sends nothing",
       {rank(0, {pair("pipe.forward.0", {0, 1}, 4, 0)}, 35),
        rank(1, {pair("pipe.forward.0", {0, 1}, 5, 34)}, 34)},
       {},
       "frozen",
       {0},
       "never entered reduce b7, seq 5, group forward"},
  };
}

TEST(Verdict, Table) {
  for (const Case& one : cases()) {
    // Through JSON, as facts come from other nodes.
    std::vector<RankFacts> facts;
    for (const RankFacts& f : one.facts)
      facts.push_back(facts_from_json(nlohmann::json::parse(to_json(f).dump())));
    const std::optional<Verdict> verdict = judge(facts, one.budgets);
    EXPECT_EQ(verdict ? name_of(verdict->kind) : "", one.kind)
        << one.what << (verdict ? ": " + verdict->sentence : "");
    if (!verdict) continue;
    EXPECT_EQ(verdict->culprits, one.culprits) << one.what;
    EXPECT_NE(verdict->sentence.find(one.says), std::string::npos) << one.what << ": " << verdict->sentence;
  }
}

TEST(Verdict, FactsFromOutsideAreChecked) {
  const nlohmann::json good = to_json(one_missing(1)[0]);
  for (const auto& [key, value] : good.items()) {
    nlohmann::json bad = good;
    bad.erase(key);
    EXPECT_THROW(facts_from_json(bad), nlohmann::json::exception) << key;
  }
  nlohmann::json wild = good;
  wild["phase"] = 1 << 20;
  EXPECT_EQ(facts_from_json(wild).phase, Phase::end);
}

}  // namespace
}  // namespace lockstep::watch
