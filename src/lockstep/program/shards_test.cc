#include "lockstep/program/shards.h"

#include <gtest/gtest.h>

namespace lockstep::program {
namespace {

TEST(Shards, EvenRunsBeginAtMultiplesOf64) {
  for (const int64_t count :
       {int64_t{0}, int64_t{1}, int64_t{63}, int64_t{1000}, int64_t{4097}, int64_t{65'536}}) {
    for (const int parts : {1, 2, 3, 5, 7, 8}) {
      SCOPED_TRACE(std::to_string(count) + " in " + std::to_string(parts));
      const std::vector<Span> spans = cut_evenly(count, parts);
      ASSERT_EQ(spans.size(), static_cast<size_t>(parts));
      int64_t end = 0;
      for (const Span& span : spans) {
        EXPECT_EQ(span.begin, end) << "they leave nothing out";
        EXPECT_EQ(span.begin % 64 == 0 || span.begin == count, true) << span.begin;
        EXPECT_LE(span.count, count / parts + 2 * 64) << "nearly equal";
        end = span.end();
      }
      EXPECT_EQ(end, count);
    }
  }
}

}  // namespace
}  // namespace lockstep::program
