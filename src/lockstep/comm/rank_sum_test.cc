// Sums over ranks of values whose order matters: they are added from the first rank to the last.
#include "lockstep/comm/rank_sum.h"

#include <bit>
#include <cmath>

#include "lockstep/comm/testing.h"

namespace lockstep::comm {
namespace {

using device::DType;
using device::Tensor;

// Fractions of very different sizes, so that every order of adding them has bits of its own.
double value_of(int rank, int64_t i) {
  constexpr double kSizes[] = {1.0 / 3, 4096.0 / 7, -1.0 / 1024, 97.0 / 11, -3000.0 / 13};
  return kSizes[(rank * 3 + i) % 5] * (1 + static_cast<double>(i % 17) / 10);
}

// Rounded to the nearest bf16, ties to even.
uint16_t bf16_of(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}
float of_bf16(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

struct F32 {
  static constexpr DType kType = DType::f32;
  using Stored = float;
  static Stored make(double value) { return static_cast<float>(value); }
  static float load(Stored value) { return value; }
  static Stored store(float value) { return value; }
};
struct F64 {
  static constexpr DType kType = DType::f64;
  using Stored = double;
  static Stored make(double value) { return value; }
  static double load(Stored value) { return value; }
  static Stored store(double value) { return value; }
};
struct Bf16 {
  static constexpr DType kType = DType::bf16;
  using Stored = uint16_t;
  static Stored make(double value) { return bf16_of(static_cast<float>(value)); }
  static float load(Stored value) { return of_bf16(value); }
  static Stored store(float value) { return bf16_of(value); }
};

template <class Type>
typename Type::Stored sum_in_order(int ranks, int64_t i) {
  auto sum = Type::load(Type::make(value_of(0, i)));
  for (int r = 1; r < ranks; ++r) sum += Type::load(Type::make(value_of(r, i)));
  return Type::store(sum);
}

template <class Type>
std::vector<typename Type::Stored> values_of(int rank, int64_t first, int64_t count) {
  std::vector<typename Type::Stored> values;
  for (int64_t i = first; i < first + count; ++i) values.push_back(Type::make(value_of(rank, i)));
  return values;
}

template <class Type>
void expect_in_order(Group& group, int rank, int ranks, int64_t count, bool exactly) {
  const auto expect = [&](const char* what, const std::vector<typename Type::Stored>& got, int64_t first) {
    for (size_t k = 0; k < got.size(); ++k) {
      const auto expected = sum_in_order<Type>(ranks, first + static_cast<int64_t>(k));
      if (exactly) {
        ASSERT_EQ(got[k], expected) << what << " " << k << " of " << device::name_of(Type::kType);
      } else {
        const auto scale = Type::kType == DType::bf16 ? 8.0 : 1e-3;  // gloo rounds after each addition
        ASSERT_NEAR(Type::load(got[k]), Type::load(expected), scale) << what << " " << k;
      }
    }
  };
  std::vector<typename Type::Stored> all = values_of<Type>(rank, 0, count);
  group.all_reduce({all.data(), Type::kType, {count}});
  expect("all_reduce", all, 0);
  // Rank q's part begins at element q * count.
  std::vector<std::vector<typename Type::Stored>> mine;
  std::vector<Tensor> parts;
  for (int q = 0; q < ranks; ++q) {
    mine.push_back(values_of<Type>(rank, q * count, count));
    parts.push_back({mine.back().data(), Type::kType, {count}});
  }
  std::vector<typename Type::Stored> own(static_cast<size_t>(count));
  group.reduce_scatter(parts, {own.data(), Type::kType, {count}});
  expect("reduce_scatter", own, rank * count);
}

struct Row {
  const char* engine;
  int ranks;
  bool exactly;  // in rank order; another engine adds as it likes
};

TEST(RankSums, AreAddedFromTheFirstRankToTheLast) {
  for (const Row& row :
       {Row{"shm", 2, true}, Row{"shm", 3, true}, Row{"shm", 5, true}, Row{"gloo", 3, false}}) {
    SCOPED_TRACE(row.engine + std::to_string(row.ranks));
    testing::run_threads(row.ranks, [&](const testing::TestRank& at) {
      const std::unique_ptr<SharedArena> arena = make_shared_arena();
      const std::unique_ptr<Group> group =
          make_group(row.engine, testing::options_of(at, "sums"), *at.store, arena.get());
      for (const int64_t count : {1, 61, 3001}) {
        expect_in_order<F32>(*group, at.rank, at.size, count, row.exactly);
        expect_in_order<F64>(*group, at.rank, at.size, count, row.exactly);
        expect_in_order<Bf16>(*group, at.rank, at.size, count, row.exactly);
      }
      group->barrier();
    });
  }
}

// By hand: (2^24 + 1) + 1 is 2^24 in fp32, but 2^24 + (1 + 1) is not; 1/3 from every rank is no whole number.
TEST(RankSums, OfThreeNumbersByHand) {
  const float a[] = {16777216.0f, 1.0f, 1.0f / 3}, b[] = {1.0f, 1.0f, 1.0f / 3},
              c[] = {1.0f, 16777216.0f, 1.0f / 3};
  const void* from[] = {a, b, c};
  float sums[3];
  void* to[] = {sums};
  sum_ranks(DType::f32, from, 3, to, 1, 3);
  EXPECT_EQ(sums[0], 16777216.0f);
  EXPECT_EQ(sums[1], 16777218.0f);
  EXPECT_EQ(sums[2], 1.0f);
}

}  // namespace
}  // namespace lockstep::comm
