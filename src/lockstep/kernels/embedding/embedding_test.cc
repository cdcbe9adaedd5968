#include "lockstep/kernels/embedding/embedding.h"

#include <fmt/format.h>

#include "lockstep/kernels/testing.h"

namespace lockstep::kernels::testing {
namespace {

struct Case {
  DType type;
  int64_t samples, seq_len, width, vocab;
  bool positions;
  float scale = 1;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const DType type : kEdgeTypes) {
    for (const int64_t width : {1, 7, 100, 256}) {
      for (const bool positions : {false, true}) {
        all.push_back({type, 1, 1, width, 1, positions});
        all.push_back({type, 3, 33, width, 50, positions});  // few tokens: each is met many times
        all.push_back({type, 7, 61, width, 3, positions});   // runs of equal tokens longer than a piece
      }
      all.push_back({type, 3, 33, width, 50, false, 5.5f});
    }
  }
  return all;
}

std::vector<int32_t> random_tokens(int64_t count, int64_t vocab, uint32_t seed) {
  std::mt19937 generator(seed);
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  for (int32_t& token : tokens) token = static_cast<int32_t>(generator() % static_cast<uint32_t>(vocab));
  return tokens;
}

std::string describe(const Case& c) {
  return fmt::format("{} samples {} seq {} width {} vocab {} positions {}", name_of(c.type), c.samples,
                     c.seq_len, c.width, c.vocab, c.positions);
}

class EmbeddingTest : public KernelTest {};

TEST_P(EmbeddingTest, ForwardLooksRowsUp) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(describe(c));
    const int64_t first = 2, rows = c.samples * c.seq_len;
    const std::vector<int32_t> tokens = random_tokens(rows, c.vocab, 1);
    const Values table = rounded(random_values(c.vocab * c.width, 2), c.type);
    const Values positions = rounded(random_values((first + c.seq_len) * c.width, 3), c.type);
    Values expected;
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t i = 0; i < c.width; ++i) {
        const double value = table[static_cast<size_t>(tokens[static_cast<size_t>(row)] * c.width + i)];
        const double position = positions[static_cast<size_t>((first + row % c.seq_len) * c.width + i)];
        const double scaled = round_to(c.type, value * static_cast<double>(c.scale));
        expected.push_back(c.positions ? round_to(c.type, round_to(DType::f32, value + position)) : scaled);
      }
    }
    const Memory tokens_m = upload_ints(tokens), table_m = upload(table, c.type),
                 out = garbage(rows * c.width, c.type);
    const Memory positions_m = upload(positions, c.type);
    Embedding op{c.type, c.samples, c.seq_len, c.width, c.vocab, tokens_m.as<int32_t>(), table_m.data()};
    op.positions = c.positions ? positions_m.data() : nullptr;
    op.first_position = first;
    op.out = out.data();
    op.scale = c.scale;
    run({&out}, [&] { kernels().embedding(op, launch()); });
    EXPECT_EQ(download(out), expected);
  }
}

TEST_P(EmbeddingTest, BackwardAddsRowsInTokenOrder) {
  for (const Case& c : cases()) {
    for (const bool accumulate : {false, true}) {
      SCOPED_TRACE(describe(c) + (accumulate ? " accumulate" : ""));
      const int64_t rows = c.samples * c.seq_len, first = 3, position_rows = first + c.seq_len + 4;
      const std::vector<int32_t> tokens = random_tokens(rows, c.vocab, 4);
      const Values dout = rounded(random_values(rows * c.width, 5), c.type);
      const Values table_before = rounded(random_values(c.vocab * c.width, 6), DType::f32);
      const Values positions_before = rounded(random_values(position_rows * c.width, 7), DType::f32);
      Values table = table_before, positions = positions_before;
      if (!accumulate)
        std::fill(table.begin(), table.end(), 0), std::fill(positions.begin(), positions.end(), 0);
      for (size_t i = 0; i < dout.size(); ++i) {
        const auto width = static_cast<size_t>(c.width), row = i / width, column = i % width;
        table[static_cast<size_t>(tokens[row]) * width + column] += dout[i] * static_cast<double>(c.scale);
        const size_t position = static_cast<size_t>(first) + row % static_cast<size_t>(c.seq_len);
        positions[position * width + column] += dout[i];
      }
      const Memory tokens_m = upload_ints(tokens), dout_m = upload(dout, c.type);
      const Memory table_m = upload(table_before, DType::f32),
                   positions_m = upload(positions_before, DType::f32);
      EmbeddingBackward op{c.type,       c.samples, c.seq_len, c.width, c.vocab, tokens_m.as<int32_t>(),
                           dout_m.data()};
      op.dtable = table_m.as<float>();
      op.dpositions = c.positions ? positions_m.as<float>() : nullptr;
      op.position_rows = position_rows;
      op.first_position = first;
      op.accumulate = accumulate;
      op.scale = c.scale;
      const int64_t bytes = kernels().embedding_workspace(rows, c.width);
      run({&table_m, &positions_m}, [&] { kernels().embedding_backward(op, launch(bytes)); });
      expect_close(download(table_m), table, tolerance(DType::f32, 30), "table");
      if (c.positions) expect_close(download(positions_m), positions, tolerance(DType::f32, 4), "positions");
    }
  }
}

// A vocabulary in parts: rows of the others are zeros, so that the parts' results add up to the whole's, and
// their gradients side by side are the whole's, bit for bit.
TEST_P(EmbeddingTest, PartsOfTheVocabularyAddUpToTheWhole) {
  for (const Case& c : cases()) {
    if (c.vocab == 1) continue;
    SCOPED_TRACE(describe(c));
    const int64_t rows = c.samples * c.seq_len, size = device::size_of(c.type);
    const Memory tokens = upload_ints(random_tokens(rows, c.vocab, 8));
    const Memory table = upload(random_values(c.vocab * c.width, 9), c.type);
    const Memory positions = upload(random_values(c.seq_len * c.width, 10), c.type);
    const Memory dout = upload(random_values(rows * c.width, 11), c.type);
    const Memory gradient = garbage(c.vocab * c.width, DType::f32);
    const auto forward = [&](int64_t first, int64_t count, bool with_positions) {
      const Memory out = garbage(rows * c.width, c.type);
      Embedding op{c.type, c.samples, c.seq_len, c.width, count, tokens.as<int32_t>()};
      op.table = table.as<char>() + first * c.width * size;
      op.positions = with_positions ? positions.data() : nullptr;
      op.first_token = first;
      op.out = out.data();
      run({&out}, [&] { kernels().embedding(op, launch()); });
      return download(out);
    };
    const auto backward = [&](int64_t first, int64_t count) {
      EmbeddingBackward op{c.type, c.samples, c.seq_len, c.width, count, tokens.as<int32_t>(), dout.data()};
      op.dtable = gradient.as<float>() + first * c.width;
      op.first_token = first;
      const int64_t bytes = kernels().embedding_workspace(rows, c.width);
      run({&gradient}, [&] { kernels().embedding_backward(op, launch(bytes)); });
    };
    const Values whole = forward(0, c.vocab, c.positions);
    backward(0, c.vocab);
    const Values whole_gradient = download(gradient);
    const std::vector<int64_t> cuts = {0, 1, c.vocab * 2 / 5, c.vocab * 2 / 3, c.vocab};
    Values sum(whole.size());
    for (size_t part = 0; part + 1 < cuts.size(); ++part) {
      const int64_t first = cuts[part], count = cuts[part + 1] - first;
      const Values out = forward(first, count, c.positions && part == 0);  // one part brings the positions
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += out[i];
      backward(first, count);
    }
    EXPECT_EQ(rounded(rounded(sum, DType::f32), c.type), whole);
    EXPECT_EQ(download(gradient), whole_gradient);
  }
}

TEST_P(EmbeddingTest, UnknownTokensTouchNoForeignMemory) {
  const std::vector<int32_t> tokens = {-1, 5, 1 << 30, 0};
  const Memory tokens_m = upload_ints(tokens), table = upload({1, 2, 3, 4, 5}, DType::f32);
  const Memory out = garbage(4, DType::f32), gradient = garbage(5, DType::f32);
  Embedding forward{DType::f32, 1, 4, 1, 5, tokens_m.as<int32_t>(), table.data()};
  forward.out = out.data();
  kernels().embedding(forward, launch());
  EXPECT_EQ(download(out), (Values{0, 0, 0, 1}));
  EmbeddingBackward op{DType::f32, 1, 4, 1, 5, tokens_m.as<int32_t>(), table.data(), gradient.as<float>()};
  kernels().embedding_backward(op, launch(kernels().embedding_workspace(4, 1)));
  EXPECT_EQ(download(gradient), (Values{4, 0, 0, 0, 0}));
}

LOCKSTEP_ON_EVERY_DEVICE(EmbeddingTest);

}  // namespace
}  // namespace lockstep::kernels::testing
