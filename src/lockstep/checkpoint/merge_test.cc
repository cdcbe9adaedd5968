#include "lockstep/checkpoint/merge.h"

#include <gtest/gtest.h>

#include <vector>

namespace lockstep::checkpoint {
namespace {

// Every piece of the weight, wherever in a row it begins and ends, as the sum written out says; small whole
// numbers are exact.
TEST(MergedWeight, AnyPieceIsThatOfTheWhole) {
  constexpr int64_t kIn = 5, kOut = 3, kRank = 2;
  MergedWeight merged{.in = kIn, .out = kOut, .rank = kRank, .scale = 2};
  for (int k = 0; k < kRank * kIn; ++k) merged.a.push_back(static_cast<float>(k * k - 7));
  for (int k = 0; k < kOut * kRank; ++k) merged.b.push_back(static_cast<float>(3 - 2 * k));
  for (const bool transposed : {false, true}) {
    merged.transposed = transposed;
    std::vector<float> whole;
    for (int64_t row = 0; row < (transposed ? kIn : kOut); ++row) {
      for (int64_t column = 0; column < (transposed ? kOut : kIn); ++column) {
        const int64_t i = transposed ? row : column, o = transposed ? column : row;
        float sum = 0;
        for (int64_t k = 0; k < kRank; ++k)
          sum += merged.a[static_cast<size_t>(k * kIn + i)] * merged.b[static_cast<size_t>(o * kRank + k)];
        whole.push_back(100 + 2 * sum);
      }
    }
    for (size_t begin = 0; begin < whole.size(); ++begin) {
      for (size_t end = begin; end <= whole.size(); ++end) {
        std::vector<float> piece(end - begin, 100);
        merged.add_to(static_cast<int64_t>(begin), piece);
        EXPECT_EQ(piece, std::vector<float>(whole.begin() + static_cast<int64_t>(begin),
                                            whole.begin() + static_cast<int64_t>(end)))
            << transposed << " " << begin << " " << end;
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::checkpoint
