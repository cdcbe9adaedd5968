#include "lockstep/kernels/reduce/tree_sum.h"

#include <algorithm>
#include <array>

#include "lockstep/base/error.h"
#include "lockstep/kernels/testing.h"

namespace lockstep::kernels::testing {
namespace {

using Merges = std::vector<uint8_t>;
using Floats = std::vector<float>;

// A tree over [begin, end) as a split of every node: the scalar recursion that the kernel must repeat bit for
// bit.
class Tree {
 public:
  // `split(n)` of a node's n leaves go left.
  Tree(int leaves, const std::function<int(int)>& split) : merges_(static_cast<size_t>(leaves)) {
    root_ = grow(0, leaves, split);
  }

  const Merges& merges() const { return merges_; }
  int leaves() const { return static_cast<int>(merges_.size()); }
  float sum(const std::vector<Floats>& inputs, size_t element) const { return sum(root_, inputs, element); }

 private:
  struct Node {
    int left, right;  // nodes; a leaf has -1 and its input
  };

  int grow(int begin, int end, const std::function<int(int)>& split) {
    if (end - begin == 1) {
      nodes_.push_back({-1, begin});
    } else {
      const int middle = begin + split(end - begin);
      const int left = grow(begin, middle, split), right = grow(middle, end, split);
      nodes_.push_back({left, right});
      ++merges_[static_cast<size_t>(end - 1)];  // the node is complete when its last leaf is there
    }
    return static_cast<int>(nodes_.size()) - 1;
  }

  float sum(int at, const std::vector<Floats>& inputs, size_t element) const {
    const Node node = nodes_[static_cast<size_t>(at)];
    if (node.left < 0) return inputs[static_cast<size_t>(node.right)][element];
    return sum(node.left, inputs, element) + sum(node.right, inputs, element);
  }

  Merges merges_;
  std::vector<Node> nodes_;
  int root_ = 0;
};

int largest_power_below(int n) {
  int power = 1;
  while (power * 2 < n) power *= 2;
  return power;
}

Tree halving(int leaves) { return {leaves, largest_power_below}; }

std::vector<Floats> random_inputs(int inputs, int64_t count, uint32_t seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<Floats> all(static_cast<size_t>(inputs), Floats(static_cast<size_t>(count)));
  for (Floats& values : all) {
    for (float& value : values) value = std::ldexp(normal(generator), static_cast<int>(generator() % 30));
  }
  return all;
}

uint32_t bits_of(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  return bits;
}

class TreeSumTest : public KernelTest {
 protected:
  // With `alias` >= 0 the sum goes over that input.
  void expect_sum(const Tree& tree, const std::vector<Floats>& inputs, int alias = -1) {
    const auto count = static_cast<int64_t>(inputs[0].size());
    std::vector<Memory> memory;
    for (const Floats& values : inputs) memory.push_back(upload_plain(values, DType::f32));
    memory.push_back(garbage(count, DType::f32));
    const Memory& out = memory[alias < 0 ? inputs.size() : static_cast<size_t>(alias)];
    TreeSum op{.count = count, .inputs = tree.leaves(), .out = out.as<float>()};
    for (size_t i = 0; i < inputs.size(); ++i) op.from[i] = memory[i].as<float>();
    std::copy(tree.merges().begin(), tree.merges().end(), op.merges);
    run({&out}, [&] { kernels().tree_sum(op, launch()); });
    expect_same(out, tree, inputs);
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (static_cast<int>(i) != alias) {
        ASSERT_EQ(memory[i].bytes(), upload_plain(inputs[i], DType::f32).bytes()) << "input " << i;
      }
    }
  }

  static void expect_same(const Memory& out, const Tree& tree, const std::vector<Floats>& inputs) {
    const std::vector<char> bytes = out.bytes();
    for (size_t i = 0; i < inputs[0].size(); ++i) {
      float actual;
      std::memcpy(&actual, bytes.data() + 4 * i, 4);
      const float expected = tree.sum(inputs, i);
      if (std::isnan(expected)) {
        ASSERT_TRUE(std::isnan(actual)) << i;  // which of two NaNs wins is the hardware's choice
      } else {
        ASSERT_EQ(bits_of(actual), bits_of(expected))
            << "element " << i << ": " << actual << ", not " << expected;
      }
    }
  }
};

TEST_P(TreeSumTest, OfHalvesIsTheRecursionsBitForBit) {
  for (const int inputs : {1, 2, 3, 4, 5, 7, 8, 12, 16, 63, 64}) {
    for (const int64_t count : {0, 1, 3, 4, 1023, 1024, 1025, 8192, 8193}) {
      SCOPED_TRACE(std::to_string(inputs) + " inputs of " + std::to_string(count));
      expect_sum(halving(inputs), random_inputs(inputs, count, static_cast<uint32_t>(inputs + count)));
    }
  }
}

TEST_P(TreeSumTest, LargeIsCutWithoutATrace) {
  for (const int inputs : {1, 2, 4, 6}) expect_sum(halving(inputs), random_inputs(inputs, 200003, 5));
}

TEST_P(TreeSumTest, OfAnyTreeIsTheRecursionsBitForBit) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 generator(seed);
  for (int round = 0; round < 60; ++round) {
    const int inputs = 1 + static_cast<int>(generator() % kTreeInputs);
    const auto count = static_cast<int64_t>(generator() % 3000);
    const Tree tree(inputs,
                    [&](int n) { return 1 + static_cast<int>(generator() % static_cast<uint32_t>(n - 1)); });
    expect_sum(tree, random_inputs(inputs, count, generator()),
               round % 2 == 0 ? -1 : static_cast<int>(generator() % static_cast<uint32_t>(inputs)));
  }
}

TEST_P(TreeSumTest, OfTheDeepestTrees) {
  const std::vector<Floats> inputs = random_inputs(kTreeInputs, 1500, 3);
  expect_sum(Tree(kTreeInputs, [](int) { return 1; }), inputs);        // every merge after the last input
  expect_sum(Tree(kTreeInputs, [](int n) { return n - 1; }), inputs);  // a left fold
  expect_sum(Tree(kTreeInputs, [](int n) { return std::min(2, n - 1); }), inputs);  // the most partial sums
}

TEST_P(TreeSumTest, MayGoOverAnyInput) {
  for (const int inputs : {1, 2, 4, 5, 8}) {
    for (int alias = 0; alias < inputs; ++alias) {
      SCOPED_TRACE(std::to_string(alias) + " of " + std::to_string(inputs));
      expect_sum(halving(inputs), random_inputs(inputs, 20001, 9), alias);
    }
  }
}

TEST_P(TreeSumTest, KeepsZerosInfinitiesAndNansAsAdditionDoes) {
  constexpr std::array kSpecial = {0.0f, -0.0f, 1e-45f, -1e-45f, 3e38f, -3e38f, INFINITY, -INFINITY, NAN};
  for (const int inputs : {1, 2, 3, 4, 8}) {
    std::vector<Floats> all = random_inputs(inputs, 2000, 1);
    std::mt19937 generator(static_cast<uint32_t>(inputs));
    for (Floats& values : all) {
      for (float& value : values) value = kSpecial[generator() % kSpecial.size()];
    }
    for (Floats& values : all) values[0] = -0.0f;  // and only these: the sum is -0
    expect_sum(halving(inputs), all);
  }
}

TEST_P(TreeSumTest, MergesThatAreNoTreeAreABug) {
  for (const Merges& merges : {Merges{}, Merges{1}, Merges{0, 0}, Merges{0, 2}, Merges{0, 1, 0}}) {
    TreeSum op{.inputs = static_cast<int>(merges.size())};
    std::copy(merges.begin(), merges.end(), op.merges);
    EXPECT_THROW(kernels().tree_sum(op, launch()), base::Bug);
  }
}

LOCKSTEP_ON_EVERY_DEVICE(TreeSumTest);

}  // namespace
}  // namespace lockstep::kernels::testing
