#include "lockstep/comm/bench_collectives.h"

#include "lockstep/base/error.h"
#include "lockstep/comm/testing.h"

namespace lockstep::comm {
namespace {

TEST(BenchCollectives, SizesAreRead) {
  EXPECT_EQ(parse_sizes("8:32M").size(), 12u);
  EXPECT_EQ(parse_sizes("1K:8K:2"), (std::vector<int64_t>{1024, 2048, 4096, 8192}));
  EXPECT_EQ(parse_sizes("100:1000:3"), (std::vector<int64_t>{100, 300, 900, 1000}));
  EXPECT_EQ(parse_sizes("64K"), (std::vector<int64_t>{65536}));
  for (const char* text : {"", "x", "8:", ":8", "8:4", "0:8", "8:32M:1", "8:32M:2:2", "-8:8", "8Q", "2",
                           "9999999999G", "1K:2K:0"}) {
    EXPECT_THROW(parse_sizes(text), base::ConfigError) << text;
  }
}

TEST(BenchCollectives, EveryRankGetsTheSameRowsAndNothingIsWrong) {
  std::vector<std::vector<BenchRow>> rows(3);
  testing::run_threads(3, [&](const testing::TestRank& at) {
    BenchOptions options;
    options.engines = {"shm", "gloo"};
    options.sizes = {4, 1000, 100'000};
    options.seconds = 0.005;
    bench_collectives(at.rank, at.size, *at.store, options,
                      [&](const BenchRow& row) { rows[static_cast<size_t>(at.rank)].push_back(row); });
  });
  ASSERT_EQ(rows[0].size(), 3 * bench_operations().size());
  for (size_t i = 0; i < rows[0].size(); ++i) {
    const BenchRow& row = rows[0][i];
    SCOPED_TRACE(row.operation + " " + std::to_string(row.bytes));
    ASSERT_EQ(row.figures.size(), 2u);
    EXPECT_EQ(row.ideal_us > 0, row.operation == "all_reduce");
    for (size_t engine = 0; engine < 2; ++engine) {
      const BenchFigure& figure = row.figures[engine];
      EXPECT_EQ(figure.wrong, 0) << figure.engine;
      EXPECT_GT(figure.time_us, 0);
      EXPECT_NEAR(figure.algbw, static_cast<double>(row.bytes) / figure.time_us / 1000,
                  1e-9 + figure.algbw * 1e-6);
      EXPECT_EQ(rows[2][i].figures[engine].time_us, figure.time_us);
    }
  }
}

}  // namespace
}  // namespace lockstep::comm
