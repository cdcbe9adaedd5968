// Which engine a request comes to: never another one in silence.
#include "lockstep/comm/engine.h"

#include <gtest/gtest.h>

#include "lockstep/base/refusal.h"
#include "lockstep/comm/testing.h"

namespace lockstep::comm {
namespace {

// Rows that this program adds before anything looks at the table.
[[maybe_unused]] const bool kAdded = [] {
  const auto nothing = [](const GroupOptions& options, Store&, SharedArena*) {
    return make_group_alone(options.name);
  };
  register_engine({.name = "pigeons", .describe = "for tests", .make = nothing});
  register_engine({.name = "grounded",
                   .describe = "for tests",
                   .why_not = [](const GroupOptions&, Store&) { return std::string("the weather is bad"); },
                   .make = nothing});
  return true;
}();

GroupOptions options_of(const testing::TestRank& rank) {
  GroupOptions options;
  options.name = "some";
  options.self = rank.rank;
  options.timeout = std::chrono::seconds(60);
  for (int r = 0; r < rank.size; ++r) options.ranks.push_back(r);
  return options;
}

std::string resolved(const std::string& request, int size) {
  std::string first;
  testing::run_threads(size, [&](const testing::TestRank& rank) {
    const std::string engine = resolve_engine(request, options_of(rank), *rank.store);
    if (rank.rank == 0) first = engine;
  });
  return first;
}

TEST(Engine, AWishIsGrantedAsItIs) {
  for (const char* request : {"shm", "gloo", "pigeons"}) EXPECT_EQ(resolved(request, 2), request);
  EXPECT_EQ(resolved("auto", 2), "shm");  // threads share all memory
  EXPECT_EQ(resolved("auto", 1), "shm");
  EXPECT_EQ(resolved("grounded", 1), "grounded");  // one rank needs nobody
}

TEST(Engine, OneThatCannotServeIsRefused) {
  struct Row {
    const char *request, *says;
  };
  for (const Row& row :
       {Row{"grounded", "engine grounded cannot be used: the weather is bad; use auto or gloo"},
        Row{"nccl", "engine nccl does not support CPU memory; use auto or gloo"},
        Row{"ucx", "\"ucx\" is not an engine; use auto, shm, gloo, nccl, pigeons or grounded"}}) {
    testing::run_threads(2, [&](const testing::TestRank& rank) {
      const std::string said =
          base::refusal(522, [&] { resolve_engine(row.request, options_of(rank), *rank.store); });
      EXPECT_NE(said.find(row.says), std::string::npos) << said;
    });
  }
}

TEST(Engine, RowsTellWhoSharesMemory) {
  EXPECT_TRUE(would_share_memory("auto"));
  EXPECT_TRUE(would_share_memory("shm"));
  EXPECT_TRUE(would_share_memory("nccl"));  // what the hosts exchange beside the GPUs
  EXPECT_FALSE(would_share_memory("gloo"));
  EXPECT_FALSE(would_share_memory("pigeons"));
}

}  // namespace
}  // namespace lockstep::comm
