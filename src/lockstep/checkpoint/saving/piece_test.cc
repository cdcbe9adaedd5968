#include "lockstep/checkpoint/saving/piece.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "lockstep/base/error.h"
#include "lockstep/checkpoint/testing.h"

namespace lockstep::checkpoint {
namespace {

using device::DType;
using device::Shape;
using Runs = std::vector<Run>;

Whole tensor(const Shape& shape, const std::string& name = "w") {
  return {.name = name, .dtype = DType::f32, .shape = shape, .kind = Kind::weight, .order = 0};
}

// What the runs say, element by element: canonical index of each element of the piece.
std::vector<int64_t> elements(const Piece& piece) {
  std::vector<int64_t> result(static_cast<size_t>(piece.count), -1);
  for (const Run& run : runs_of(piece)) {
    for (int64_t k = 0; k < run.count; ++k) result[static_cast<size_t>(run.from + k)] = run.at + k;
  }
  return result;
}

TEST(Piece, RunsOfACutMatrix) {
  Piece rows = whole_piece(tensor({4, 6}));
  cut(rows, 0, 1, 2);
  EXPECT_EQ(runs_of(rows), (Runs{{12, 0, 12}}));
  Piece columns = whole_piece(tensor({2, 6}));
  cut(columns, 1, 1, 2);
  EXPECT_EQ(runs_of(columns), (Runs{{3, 0, 3}, {9, 3, 3}}));
  Piece fused = whole_piece(tensor({2, 6}));  // three groups of two columns, the second of each
  cut(fused, 1, 1, 2, 3);
  EXPECT_EQ(elements(fused), (std::vector<int64_t>{1, 3, 5, 7, 9, 11}));
  EXPECT_EQ(elements(part_of(fused, 2, 3)), (std::vector<int64_t>{5, 7, 9}));
  EXPECT_TRUE(runs_of(part_of(fused, 2, 0)).empty());
}

// Any cut, then any share: the runs are what plain indexing says.
TEST(Piece, RunsAgreeWithPlainIndexing) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % static_cast<uint64_t>(n)); };
  for (int round = 0; round < 300; ++round) {
    const int64_t parts = 1 + below(3), groups = 1 + below(3), dimension = below(3), part = below(parts);
    int64_t sizes[3] = {1 + below(4), 1 + below(4), 1 + below(4)};
    sizes[dimension] *= parts * groups;
    Piece piece = whole_piece(tensor({sizes[0], sizes[1], sizes[2]}));
    cut(piece, static_cast<int>(dimension), part, parts, groups);
    std::vector<int64_t> expected;
    const int64_t width = sizes[dimension] / groups / parts;
    for (int64_t i = 0; i < sizes[0] * sizes[1] * sizes[2]; ++i) {
      const int64_t index[3] = {i / (sizes[1] * sizes[2]), i / sizes[2] % sizes[1], i % sizes[2]};
      if (index[dimension] / width % parts == part) expected.push_back(i);
    }
    ASSERT_EQ(elements(piece), expected);
    const int64_t begin = below(piece.count), count = below(piece.count - begin + 1);
    ASSERT_EQ(elements(part_of(piece, begin, count)),
              std::vector<int64_t>(expected.begin() + begin, expected.begin() + begin + count));
  }
}

TEST(Piece, CopiesShareTheWritingEvenly) {
  std::vector<Piece> held;
  for (int64_t k = 0; k < 20; ++k)
    held.push_back(whole_piece(tensor({k % 3 == 0 ? 40 : 300'000}, std::to_string(k))));
  for (const int copies : {1, 2, 3, 7, 16}) {
    std::vector<std::vector<Piece>> by_rank;
    for (int copy = 0; copy < copies; ++copy) {
      int64_t bytes = 0;
      by_rank.emplace_back();
      for (const Assigned& one : share_of(held, copy, copies)) {
        EXPECT_EQ(one.piece.first, one.begin);
        EXPECT_EQ(one.piece.tensor, held[one.of].tensor);
        by_rank.back().push_back(one.piece);
        bytes += one.piece.bytes();
      }
      EXPECT_NEAR(static_cast<double>(bytes), 13 * 1.2e6 / copies, 2 * 65'536 * 4) << copies;
    }
    EXPECT_EQ(check_cover(by_rank).size(), held.size());
  }
  // Shares of a share are cut where the canonical chunks are.
  const std::vector<Piece> share = {part_of(held[1], 65'536, 200'000)};
  EXPECT_EQ(share_of(share, 1, 2)[0].piece.first % 65'536, 0);
}

TEST(Piece, GapsAndOverlapsAreBugs) {
  const Piece whole = whole_piece(tensor({10}));
  EXPECT_NO_THROW(check_cover({{part_of(whole, 0, 4)}, {part_of(whole, 4, 6)}}));
  EXPECT_THROW(check_cover({{part_of(whole, 0, 4)}, {part_of(whole, 5, 5)}}), base::Bug);
  EXPECT_THROW(check_cover({{part_of(whole, 0, 4)}, {part_of(whole, 3, 7)}}), base::Bug);
  EXPECT_THROW(check_cover({{part_of(whole, 0, 9)}}), base::Bug);
  EXPECT_THROW(check_cover({{part_of(whole, 0, 0)}, {}}), base::Bug) << "held, and nobody writes it";
  EXPECT_NO_THROW(check_cover({{part_of(whole, 0, 0)}, {whole}}));
  EXPECT_THROW(check_cover({{part_of(whole, 0, 4)}, {whole_piece(tensor({11}))}}), base::Bug);
  Piece uneven = whole_piece(tensor({10}));
  EXPECT_THROW(cut(uneven, 0, 0, 3), base::Bug);
}

TEST(Piece, TensorsComeInTheModelsOrder) {
  Whole a = tensor({2}, "z"), b = tensor({2}, "a"), m = tensor({2}, "a.m");
  a.order = 0, b.order = 1, m.order = 0, m.kind = Kind::moment;
  const std::vector<Whole> order = check_cover({{whole_piece(m), whole_piece(b)}, {whole_piece(a)}});
  EXPECT_EQ(order, (std::vector<Whole>{a, b, m}));
}

}  // namespace
}  // namespace lockstep::checkpoint
