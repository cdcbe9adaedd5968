#include "lockstep/kernels/reduce/sum_addends.h"

#include "lockstep/kernels/testing.h"

namespace lockstep::kernels::testing {
namespace {

class SumAddendsTest : public KernelTest {
 protected:
  // `inputs` addends from `from` on, summed by the kernel into a value of this type.
  Memory sum(const std::vector<Memory>& from, size_t first, size_t inputs, DType type) {
    SumAddends op{.in = from[first].type(), .out = type, .count = from[first].count()};
    op.inputs = static_cast<int>(inputs);
    for (size_t k = 0; k < inputs; ++k) op.from[k] = from[first + k].data();
    Memory to = garbage(op.count, type);
    op.to = to.data();
    run({&to}, [&] { kernels().sum_addends(op, launch()); });
    return to;
  }
};

float tree(const std::vector<Values>& addends, size_t first, size_t count, size_t element) {
  if (count == 1) return static_cast<float>(addends[first][element]);
  return tree(addends, first, count / 2, element) + tree(addends, first + count / 2, count / 2, element);
}

// Of all addends at once, and of halves whose sums are handed over in fp32: the recursion's bits.
TEST_P(SumAddendsTest, IsTheTreeHoweverItIsCut) {
  for (const DType type : {DType::f32, DType::bf16, DType::f16}) {
    for (const size_t inputs : {1u, 2u, 4u, 8u, 16u, 64u}) {
      for (const int64_t count : {1, 7, 1024, 5003}) {
        SCOPED_TRACE(::testing::Message() << device::name_of(type) << ", " << inputs << " of " << count);
        std::vector<Values> addends;
        std::vector<Memory> there;
        for (size_t k = 0; k < inputs; ++k) {
          addends.push_back(rounded(random_values(count, static_cast<uint32_t>(7 * k + 1)), type));
          there.push_back(upload(addends.back(), type));
        }
        Values expected;
        for (size_t i = 0; i < static_cast<size_t>(count); ++i)
          expected.push_back(round_to(type, tree(addends, 0, inputs, i)));
        EXPECT_EQ(download(sum(there, 0, inputs, type)), expected);
        if (inputs == 1) continue;
        std::vector<Memory> halves;
        halves.push_back(sum(there, 0, inputs / 2, DType::f32));
        halves.push_back(sum(there, inputs / 2, inputs / 2, DType::f32));
        EXPECT_EQ(download(sum(halves, 0, 2, type)), expected);
      }
    }
  }
}

LOCKSTEP_ON_EVERY_DEVICE(SumAddendsTest);

}  // namespace
}  // namespace lockstep::kernels::testing
