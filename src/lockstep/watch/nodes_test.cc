#include "lockstep/watch/nodes.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <thread>

#include "lockstep/base/temporary_folder.h"

namespace lockstep::watch {
namespace {

namespace fs = std::filesystem;

RankFacts facts_of(int rank, const std::string& host) {
  RankFacts facts;
  facts.rank = rank, facts.pid = 100 + rank, facts.host = host;
  facts.phase = Phase::train, facts.step = 7, facts.last = "forward b1 s0";
  facts.waits = 0.25, facts.memory = 1 << 20;
  return facts;
}

TEST(Nodes, NobodyAsksNobodyIsTold) {
  const base::TemporaryFolder folder;
  const std::string run = folder.path();
  NodesAsked asked;
  EXPECT_FALSE(asked.by_now(run));
  EXPECT_FALSE(ask_nodes(run)) << "there is no trace folder yet";
  fs::create_directory(run + "/trace");
  EXPECT_FALSE(asked.by_now(run));
  EXPECT_TRUE(ask_nodes(run));
  EXPECT_TRUE(asked.by_now(run));
  EXPECT_TRUE(asked.by_now(run));
  // A question that was there before this launcher is none of its own time.
  NodesAsked later;
  EXPECT_FALSE(later.by_now(run));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_TRUE(ask_nodes(run));
  EXPECT_TRUE(later.by_now(run));
}

TEST(Nodes, FactsComeBackByRankWhileTheyAreFresh) {
  const base::TemporaryFolder folder;
  const std::string run = folder.path();
  fs::create_directory(run + "/trace");
  EXPECT_TRUE(read_nodes(run).empty());
  ASSERT_TRUE(ask_nodes(run));
  write_nodes(run, nodes_text({facts_of(3, "b"), facts_of(1, "a")}));
  const std::vector<RankFacts> back = read_nodes(run);
  ASSERT_EQ(back.size(), 2u);
  EXPECT_EQ(back[0].rank, 1);
  EXPECT_EQ(back[1].host, "b");
  EXPECT_EQ(back[1].last, "forward b1 s0");
  EXPECT_EQ(back[1].waits, 0.25);
  EXPECT_EQ(back[1].memory, 1 << 20);
  // An answer to an older question is none.
  fs::last_write_time(run + "/trace/nodes.json", fs::file_time_type::clock::now() - std::chrono::minutes(1));
  EXPECT_TRUE(read_nodes(run).empty());
  for (const char* text : {"", "[]", "{\"ranks\": 3}", "{\"ranks\": [{}]}", "\xff"}) {
    folder.write("trace/nodes.json", text);
    EXPECT_TRUE(read_nodes(run).empty()) << text;
  }
}

}  // namespace
}  // namespace lockstep::watch
