#include "lockstep/data/documents/packing.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace lockstep::data {
namespace {

// Every document once, and no sample above either limit; documents that fit together stand together.
TEST(Packing, KeepsBothLimits) {
  struct Case {
    const char* what;
    std::vector<int64_t> lengths;
    int64_t tokens, documents;
    int64_t samples;
  };
  const Case cases[] = {{"nothing", {}, 10, 4, 0},
                        {"one that fills a sample", {10}, 10, 4, 1},
                        {"pairs that fill one each", {3, 7, 3, 7}, 10, 4, 2},
                        {"short ones stop at the number of documents", std::vector<int64_t>(9, 1), 100, 3, 3},
                        {"one document a sample", {1, 1, 1}, 100, 1, 3}};
  for (const Case& one : cases) {
    for (const uint64_t seed : {1, 2, 3}) {
      const Packing packing(one.lengths, {.tokens = one.tokens, .documents = one.documents}, seed);
      ASSERT_EQ(packing.samples(), one.samples) << one.what;
      std::multiset<int64_t> seen;
      for (int64_t sample = 0; sample < packing.samples(); ++sample) {
        int64_t tokens = 0;
        for (const int64_t document : packing.documents(sample)) {
          seen.insert(document);
          tokens += one.lengths[static_cast<size_t>(document)];
        }
        EXPECT_LE(tokens, one.tokens) << one.what;
        EXPECT_LE(static_cast<int64_t>(packing.documents(sample).size()), one.documents) << one.what;
      }
      EXPECT_EQ(seen.size(), one.lengths.size()) << one.what;
      EXPECT_EQ(std::set<int64_t>(seen.begin(), seen.end()).size(), one.lengths.size()) << one.what;
    }
  }
}

}  // namespace
}  // namespace lockstep::data
