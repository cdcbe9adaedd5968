#include "lockstep/kernels/attention/attention.h"

#include <fmt/format.h>

#include <cstdlib>
#include <functional>

#include "lockstep/kernels/testing.h"

namespace lockstep::kernels::testing {
namespace {

// samples, seq_len, heads, kv_heads, head_dim
constexpr int64_t kShapes[][5] = {{1, 1, 1, 1, 16},    {2, 7, 2, 2, 8},    {3, 33, 4, 2, 16},
                                  {2, 64, 4, 4, 32},   {1, 100, 6, 2, 64}, {1, 257, 3, 1, 32},
                                  {2, 130, 2, 1, 128}, {1, 96, 2, 2, 192}, {1, 140, 2, 1, 256}};

// Windows shorter than a tile, across tiles, of one key, and longer than the sequence.
struct ScoredShape {
  int64_t sizes[5];
  ScoreOptions scores;
};
constexpr ScoredShape kScored[] = {{{2, 33, 4, 2, 16}, {.window = 5}},
                                   {{1, 257, 3, 1, 32}, {.window = 100}},
                                   {{1, 140, 2, 2, 64}, {.window = 1}},
                                   {{2, 7, 2, 2, 8}, {.window = 50}},
                                   {{1, 100, 6, 2, 64}, {.softcap = 1.5f, .scale = 0.3f}},
                                   {{1, 70, 2, 1, 128}, {.scale = 0.05f}},
                                   {{2, 130, 4, 1, 96}, {.window = 33, .softcap = 0.8f, .scale = 0.2f}}};

std::vector<AttentionShape> shapes() {
  std::vector<AttentionShape> all;
  for (const DType type : kEdgeTypes) {
    for (const auto& s : kShapes) all.push_back({type, s[0], s[1], s[2], s[3], s[4]});
    for (const auto& [s, scores] : kScored) all.push_back({type, s[0], s[1], s[2], s[3], s[4], scores});
  }
  return all;
}

std::string describe(const AttentionShape& s) {
  return fmt::format("{} samples {} seq {} heads {} kv {} dim {} window {} cap {} scale {}", name_of(s.type),
                     s.samples, s.seq_len, s.heads, s.kv_heads, s.head_dim, s.scores.window, s.scores.softcap,
                     s.scores.scale);
}

// Attention of one head in fp64, straight from its definition.
struct Reference {
  AttentionShape shape;
  Values qkv, out, lse, p;  // p: [samples, heads, seq_len, seq_len]

  explicit Reference(const AttentionShape& s, Values input) : shape(s), qkv(std::move(input)) {
    out.resize(static_cast<size_t>(s.rows() * s.heads * s.head_dim));
    lse.resize(static_cast<size_t>(s.samples * s.heads * s.seq_len));
    p.resize(lse.size() * static_cast<size_t>(s.seq_len));
    for_rows([&](int64_t sample, int64_t head, int64_t i) { forward_row(sample, head, i); });
  }
  template <class Body>
  void for_rows(Body body) const {
    for (int64_t sample = 0; sample < shape.samples; ++sample) {
      for (int64_t head = 0; head < shape.heads; ++head) {
        for (int64_t i = 0; i < shape.seq_len; ++i) body(sample, head, i);
      }
    }
  }
  int64_t kv_of(int64_t head) const { return head / (shape.heads / shape.kv_heads); }
  size_t q_at(int64_t sample, int64_t head, int64_t i) const {
    return static_cast<size_t>((sample * shape.seq_len + i) * shape.qkv_width() + head * shape.head_dim);
  }
  size_t k_at(int64_t sample, int64_t head, int64_t i) const {
    return q_at(sample, shape.heads + kv_of(head), i);
  }
  size_t v_at(int64_t sample, int64_t head, int64_t i) const {
    return q_at(sample, shape.heads + shape.kv_heads + kv_of(head), i);
  }
  size_t out_at(int64_t sample, int64_t head, int64_t i) const {
    return static_cast<size_t>(((sample * shape.seq_len + i) * shape.heads + head) * shape.head_dim);
  }
  size_t row_at(int64_t sample, int64_t head, int64_t i) const {
    return static_cast<size_t>((sample * shape.heads + head) * shape.seq_len + i);
  }
  double* p_row(int64_t sample, int64_t head, int64_t i) {
    return &p[row_at(sample, head, i) * static_cast<size_t>(shape.seq_len)];
  }
  double dot(const Values& a, size_t a_first, const Values& b, size_t b_first) const {
    double sum = 0;
    for (size_t d = 0; d < static_cast<size_t>(shape.head_dim); ++d) sum += a[a_first + d] * b[b_first + d];
    return sum;
  }
  double scale() const {
    const ScoreOptions& s = shape.scores;
    return s.scale > 0 ? static_cast<double>(s.scale) : 1 / std::sqrt(static_cast<double>(shape.head_dim));
  }
  double cap() const { return static_cast<double>(shape.scores.softcap); }
  int64_t first_seen(int64_t i) const {
    return shape.scores.window > 0 ? std::max<int64_t>(0, i - (shape.scores.window - 1)) : 0;
  }
  double score(int64_t sample, int64_t head, int64_t i, int64_t j) const {
    const double product = scale() * dot(qkv, q_at(sample, head, i), qkv, k_at(sample, head, j));
    return cap() > 0 ? cap() * std::tanh(product / cap()) : product;
  }

  void forward_row(int64_t sample, int64_t head, int64_t i) {
    double* row = p_row(sample, head, i);
    double top = -INFINITY, sum = 0;
    for (int64_t j = first_seen(i); j <= i; ++j) {
      row[j] = score(sample, head, i, j);
      top = std::max(top, row[j]);
    }
    for (int64_t j = first_seen(i); j <= i; ++j) sum += row[j] = std::exp(row[j] - top);
    lse[row_at(sample, head, i)] = top + std::log(sum);
    for (int64_t j = first_seen(i); j <= i; ++j) {
      row[j] /= sum;
      for (int64_t d = 0; d < shape.head_dim; ++d) {
        out[out_at(sample, head, i) + static_cast<size_t>(d)] +=
            row[j] * qkv[v_at(sample, head, j) + static_cast<size_t>(d)];
      }
    }
  }

  Values backward(const Values& dout) {
    Values dqkv(qkv.size());
    for_rows([&](int64_t sample, int64_t head, int64_t i) {
      const size_t o = out_at(sample, head, i), q = q_at(sample, head, i);
      const double delta = dot(dout, o, out, o);
      for (int64_t j = first_seen(i); j <= i; ++j) {
        const size_t k = k_at(sample, head, j), v = v_at(sample, head, j);
        const double probability = p_row(sample, head, i)[j];
        const double bent = cap() > 0 ? score(sample, head, i, j) / cap() : 0;
        const double dscore = probability * (dot(dout, o, qkv, v) - delta) * scale() * (1 - bent * bent);
        for (size_t d = 0; d < static_cast<size_t>(shape.head_dim); ++d) {
          dqkv[q + d] += dscore * qkv[k + d];
          dqkv[k + d] += dscore * qkv[q + d];
          dqkv[v + d] += probability * dout[o + d];
        }
      }
    });
    return dqkv;
  }
};

class AttentionTest : public KernelTest {
 protected:
  void on_every_engine(const AttentionShape& shape, const std::function<void()>& body) {
    on_every_attention([&] { return kernels().attention_engine(shape); }, body);
  }
};

TEST_P(AttentionTest, ForwardMatchesReference) {
  for (const AttentionShape& shape : shapes()) {
    SCOPED_TRACE(describe(shape));
    const Reference reference(shape, rounded(random_values(shape.rows() * shape.qkv_width(), 5), shape.type));
    const Memory qkv = upload(reference.qkv, shape.type);
    const Memory out = garbage(static_cast<int64_t>(reference.out.size()), shape.type);
    const Memory lse = garbage(static_cast<int64_t>(reference.lse.size()), DType::f32);
    const AttentionForward op{shape, qkv.data(), out.data(), lse.as<float>()};
    on_every_engine(shape, [&] {
      run({&out, &lse},
          [&] { kernels().attention_forward(op, launch(kernels().attention_workspace(shape))); });
      expect_close(download(out), reference.out, tolerance(shape.type), "out");
      expect_close(download(lse), reference.lse, tolerance(DType::f32, shape.type == DType::f32 ? 1 : 1000),
                   "lse");
    });
  }
}

TEST_P(AttentionTest, BackwardMatchesReference) {
  for (const AttentionShape& shape : shapes()) {
    SCOPED_TRACE(describe(shape));
    Reference reference(shape, rounded(random_values(shape.rows() * shape.qkv_width(), 6), shape.type));
    const Values dout = rounded(random_values(static_cast<int64_t>(reference.out.size()), 7), shape.type);
    const Memory qkv = upload(reference.qkv, shape.type), out = upload(reference.out, shape.type);
    const Memory lse = upload(reference.lse, DType::f32), dout_m = upload(dout, shape.type);
    const Memory dqkv = garbage(qkv.count(), shape.type);
    const AttentionBackward op{shape, qkv.data(), out.data(), dout_m.data(), lse.as<float>(), dqkv.data()};
    const Values expected = reference.backward(dout);
    on_every_engine(shape, [&] {
      run({&dqkv}, [&] { kernels().attention_backward(op, launch(kernels().attention_workspace(shape))); });
      expect_close(download(dqkv), expected, tolerance(shape.type, 8), "dqkv");
    });
  }
}

// FlashAttention's kernels, where they are here: every width, every grouping, lengths beside its tiles.
class FlashTest : public AttentionTest {
 protected:
  void SetUp() override {
    AttentionTest::SetUp();
    if (IsSkipped()) return;
    ::setenv("LOCKSTEP_ATTENTION", "flash", 1);
    const std::string engine = kernels().attention_engine({DType::bf16, 1, 64, 1, 1, 64});
    if (!engine.starts_with("flash")) GTEST_SKIP() << "no FlashAttention here: attention is by " << engine;
  }
  void TearDown() override {
    ::unsetenv("LOCKSTEP_ATTENTION");
    AttentionTest::TearDown();
  }

  struct Results {
    Values out, lse, dqkv;
  };
  // Both passes, each several times, with scratch of its own.
  Results both_passes(const AttentionShape& shape, const Memory& qkv, const Memory& dout) {
    const int64_t width = shape.heads * shape.head_dim;
    const Memory out = garbage(shape.rows() * width, shape.type), dqkv = garbage(qkv.count(), shape.type);
    const Memory lse = garbage(shape.rows() * shape.heads, DType::f32);
    const Launch scratch = launch(kernels().attention_workspace(shape));
    run({&out, &lse}, [&] {
      kernels().attention_forward({shape, qkv.data(), out.data(), lse.as<float>()}, scratch);
    });
    run({&dqkv}, [&] {
      kernels().attention_backward({shape, qkv.data(), out.data(), dout.data(), lse.as<float>(), dqkv.data()},
                                   scratch);
    });
    return {download(out), download(lse), download(dqkv)};
  }
};

double relative_distance(const Values& actual, const Values& expected) {
  double apart = 0, size = 0;
  for (size_t i = 0; i < actual.size(); ++i) {
    apart += (actual[i] - expected[i]) * (actual[i] - expected[i]);
    size += expected[i] * expected[i];
  }
  return std::sqrt(apart / size);
}

TEST_P(FlashTest, MatchesReferenceForEveryHeadAndLength) {
  // seq_len, heads, kv_heads, head_dim
  constexpr int64_t kRows[][4] = {{1, 2, 2, 64},    {2, 4, 1, 64},    {64, 4, 4, 64},   {127, 6, 3, 64},
                                  {128, 8, 2, 64},  {129, 6, 1, 64},  {191, 7, 1, 64},  {193, 16, 2, 64},
                                  {385, 3, 1, 64},  {65, 5, 1, 128},  {128, 4, 4, 128}, {131, 7, 1, 128},
                                  {257, 6, 2, 128}, {300, 8, 1, 128}, {40, 4, 4, 96},   {193, 8, 2, 96},
                                  {130, 8, 1, 96},  {33, 2, 2, 256},  {145, 4, 2, 256}, {210, 8, 1, 256}};
  for (const DType type : {DType::bf16, DType::f16}) {
    for (const auto& row : kRows) {
      const AttentionShape shape{type, 2, row[0], row[1], row[2], row[3]};
      SCOPED_TRACE(describe(shape));
      ASSERT_TRUE(kernels().attention_engine(shape).starts_with("flash"));
      Reference reference(shape, rounded(random_values(shape.rows() * shape.qkv_width(), 12), type));
      const Values dout = rounded(random_values(shape.rows() * shape.heads * shape.head_dim, 13), type);
      const Results got = both_passes(shape, upload(reference.qkv, type), upload(dout, type));
      expect_close(got.out, reference.out, tolerance(type), "out");
      expect_close(got.lse, reference.lse, tolerance(DType::f32, 1000), "lse");
      const Values expected = reference.backward(dout);
      expect_close(got.dqkv, expected, tolerance(type, 8), "dqkv");
      EXPECT_LE(relative_distance(got.dqkv, expected), type == DType::bf16 ? 8e-3 : 1e-3);
    }
  }
}

// Windows shorter than a tile, of whole tiles, across several; caps that bend most scores, and both.
TEST_P(FlashTest, WindowsAndSoftCapsMatchReference) {
  struct Row {
    int64_t seq_len, heads, kv_heads, head_dim;
    ScoreOptions scores;
  };
  constexpr Row kRows[] = {{300, 2, 2, 64, {.window = 1}},
                           {385, 4, 2, 64, {.window = 100}},
                           {300, 8, 1, 64, {.window = 299}},
                           {257, 4, 1, 128, {.window = 128}},
                           {300, 2, 2, 128, {.window = 17, .scale = 0.05f}},
                           {400, 2, 2, 96, {.window = 129}},
                           {290, 4, 2, 256, {.window = 64}},
                           {130, 2, 2, 128, {.softcap = 2.0f, .scale = 0.2f}},
                           {290, 4, 2, 256, {.softcap = 50.0f, .scale = 0.0625f}},
                           {257, 4, 1, 256, {.softcap = 1.5f, .scale = 0.1f}},
                           {385, 4, 2, 128, {.window = 70, .softcap = 2.0f, .scale = 0.2f}},
                           {290, 4, 1, 256, {.window = 100, .softcap = 50.0f, .scale = 0.0625f}}};
  for (const Row& row : kRows) {
    const AttentionShape shape{DType::bf16,  2,         row.seq_len, row.heads, row.kv_heads,
                               row.head_dim, row.scores};
    SCOPED_TRACE(describe(shape));
    ASSERT_TRUE(kernels().attention_engine(shape).starts_with("flash")) << kernels().attention_engine(shape);
    Reference reference(shape, rounded(random_values(shape.rows() * shape.qkv_width(), 16), shape.type));
    const Values dout = rounded(random_values(shape.rows() * shape.heads * shape.head_dim, 17), shape.type);
    const Results got = both_passes(shape, upload(reference.qkv, shape.type), upload(dout, shape.type));
    expect_close(got.out, reference.out, tolerance(shape.type), "out");
    expect_close(got.lse, reference.lse, tolerance(DType::f32, 1000), "lse");
    const Values expected = reference.backward(dout);
    expect_close(got.dqkv, expected, tolerance(shape.type, 8), "dqkv");
    EXPECT_LE(relative_distance(got.dqkv, expected), 8e-3);
  }
}

// Sequences of many tiles, and more blocks than the GPU runs at once: turns are really waited for.
TEST_P(FlashTest, LongSequencesMatchOurOwnKernels) {
  constexpr ScoredShape kRows[] = {{{1, 8192, 4, 1, 64}, {}},
                                   {{3, 3001, 12, 12, 64}, {}},
                                   {{2, 5000, 6, 2, 128}, {}},
                                   {{1, 4097, 8, 2, 96}, {}},
                                   {{2, 4500, 8, 2, 128}, {.window = 1000}},
                                   {{1, 4500, 8, 4, 256}, {.window = 2048, .softcap = 50, .scale = 0.0625f}},
                                   {{1, 4500, 8, 4, 256}, {.softcap = 50, .scale = 0.0625f}}};
  for (const auto& [sizes, scores] : kRows) {
    const AttentionShape shape{DType::bf16, sizes[0], sizes[1], sizes[2], sizes[3], sizes[4], scores};
    SCOPED_TRACE(describe(shape));
    const Memory qkv = upload(random_values(shape.rows() * shape.qkv_width(), 14), shape.type);
    const Memory dout = upload(random_values(shape.rows() * shape.heads * shape.head_dim, 15), shape.type);
    ::setenv("LOCKSTEP_ATTENTION", "own", 1);
    const Results expected = both_passes(shape, qkv, dout);
    ::setenv("LOCKSTEP_ATTENTION", "flash", 1);
    ASSERT_TRUE(kernels().attention_engine(shape).starts_with("flash"));
    const Results got = both_passes(shape, qkv, dout);
    EXPECT_LE(relative_distance(got.out, expected.out), 8e-3);
    EXPECT_LE(relative_distance(got.lse, expected.lse), 1e-4);
    EXPECT_LE(relative_distance(got.dqkv, expected.dqkv), 1.6e-2);
  }
}

// The same scratch for twice the length is at most twice as much.
TEST_P(FlashTest, ScratchGrowsWithTheLength) {
  const auto scratch = [&](int64_t seq_len) {
    return kernels().attention_workspace({DType::bf16, 1, seq_len, 32, 8, 64});
  };
  EXPECT_LE(scratch(65536), 2 * scratch(32768));
  EXPECT_LE(scratch(65536), int64_t{1} << 30);
}

class AttentionReference : public ::testing::TestWithParam<ScoreOptions> {};

TEST_P(AttentionReference, GradientIsThatOfFiniteDifferences) {
  const AttentionShape shape{DType::f32, 1, 5, 2, 1, 3, GetParam()};
  const Values qkv = random_values(shape.rows() * shape.qkv_width(), 8);
  Reference reference(shape, qkv);
  const Values dout = random_values(static_cast<int64_t>(reference.out.size()), 9);
  const Values gradient = reference.backward(dout);
  const auto loss = [&](const Values& input) {
    const Values out = Reference(shape, input).out;
    double sum = 0;
    for (size_t i = 0; i < out.size(); ++i) sum += out[i] * dout[i];
    return sum;
  };
  for (size_t i = 0; i < qkv.size(); ++i) {
    Values up = qkv, down = qkv;
    up[i] += 1e-5;
    down[i] -= 1e-5;
    EXPECT_NEAR(gradient[i], (loss(up) - loss(down)) / 2e-5, 1e-7) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Scores, AttentionReference,
                         ::testing::Values(ScoreOptions{}, ScoreOptions{.window = 2},
                                           ScoreOptions{.softcap = 0.7f, .scale = 0.4f}));

// Rows of all samples, each in a slot of its own, in passes of `at_a_time` tokens; the last pass may be
// shorter. Rows of one sample stand together, or one behind the other's.
struct Passes {
  int64_t at_a_time;
  bool together;
};

TEST_P(AttentionTest, DecodeGivesTheForwardPassInPiecesOfAnyLength) {
  for (const AttentionShape& shape : shapes()) {
    const Reference reference(shape,
                              rounded(random_values(shape.rows() * shape.qkv_width(), 10), shape.type));
    const int64_t capacity = shape.seq_len + 3, kv_width = shape.kv_heads * shape.head_dim;
    const int64_t width = shape.heads * shape.head_dim, slots = shape.samples + 1;
    for (const Passes& passes : {Passes{1, true}, Passes{7, true}, Passes{7, false}, Passes{1000, true}}) {
      if (passes.at_a_time == 1 && shape.seq_len > 64) continue;  // one launch a token
      SCOPED_TRACE(fmt::format("{}, {} at a time", describe(shape), passes.at_a_time));
      const Memory keys = garbage(slots * capacity * kv_width, shape.type);
      const Memory values = garbage(keys.count(), shape.type);
      for (int64_t t = 0; t < shape.seq_len; t += passes.at_a_time) {
        const int64_t tokens = std::min(passes.at_a_time, shape.seq_len - t), rows = shape.samples * tokens;
        Values qkv, expected;
        std::vector<int32_t> slot_of, positions;
        for (int64_t row = 0; row < rows; ++row) {
          const int64_t sample = passes.together ? row / tokens : row % shape.samples;
          const int64_t token = t + (passes.together ? row % tokens : row / shape.samples);
          const auto from = reference.qkv.begin() + (sample * shape.seq_len + token) * shape.qkv_width();
          const auto result = reference.out.begin() + (sample * shape.seq_len + token) * width;
          qkv.insert(qkv.end(), from, from + shape.qkv_width());
          expected.insert(expected.end(), result, result + width);
          slot_of.push_back(static_cast<int32_t>(slots - 1 - sample));
          positions.push_back(static_cast<int32_t>(token));
        }
        AttentionShape of_pass = shape;
        of_pass.samples = rows, of_pass.seq_len = 1;
        const Memory there = upload(qkv, shape.type), out = garbage(rows * width, shape.type);
        const Memory slots_there = upload_ints(slot_of), positions_there = upload_ints(positions);
        const AttentionDecode op{.shape = of_pass,
                                 .slots = slots,
                                 .capacity = capacity,
                                 .slot_of = slots_there.as<int32_t>(),
                                 .positions = positions_there.as<int32_t>(),
                                 .qkv = there.data(),
                                 .keys = keys.data(),
                                 .values = values.data(),
                                 .out = out.data()};
        run({&out},
            [&] { kernels().attention_decode(op, launch(attention_decode_workspace(shape.head_dim, 4))); });
        expect_close(download(out), expected, tolerance(shape.type), fmt::format("from token {}", t));
      }
    }
  }
}

TEST_P(AttentionTest, RopeTurnsHalvesAndTurnsThemBack) {
  for (const AttentionShape& shape : shapes()) {
    SCOPED_TRACE(describe(shape));
    const int64_t first = 3, dim = shape.head_dim;
    const int64_t turned = shape.scores.window > 0 ? dim / 4 * 2 : dim, half = turned / 2;  // half of a head
    Values table;
    for (int64_t position = 0; position < first + shape.seq_len; ++position) {
      for (const bool sine : {false, true}) {
        for (int64_t i = 0; i < half; ++i) {
          const double angle = static_cast<double>(position) * std::pow(1e4, -static_cast<double>(i) / half);
          table.push_back(sine ? std::sin(angle) : std::cos(angle));
        }
      }
    }
    const Values qkv = rounded(random_values(shape.rows() * shape.qkv_width(), 11), shape.type);
    Values expected = qkv;
    for (int64_t row = 0; row < shape.rows(); ++row) {
      const double* cosine = &table[static_cast<size_t>((first + row % shape.seq_len) * turned)];
      for (int64_t head = 0; head < shape.heads + shape.kv_heads; ++head) {
        double* x = &expected[static_cast<size_t>(row * shape.qkv_width() + head * dim)];
        for (int64_t i = 0; i < half; ++i) {
          const double a = x[i], b = x[half + i], c = cosine[i], s = cosine[half + i];
          x[i] = a * c - b * s;
          x[half + i] = b * c + a * s;
        }
      }
    }
    const Memory there = upload(qkv, shape.type), table_m = upload(table, DType::f32);
    Rope op{shape, there.data(), table_m.as<float>(), first, false, turned};
    run({&there}, [&] { kernels().rope(op, launch()); });
    expect_close(download(there), expected, tolerance(shape.type));
    op.backward = true;
    run({&there}, [&] { kernels().rope(op, launch()); });
    expect_close(download(there), qkv, tolerance(shape.type, 4), "turned back");
    std::vector<int32_t> positions;  // the same, said of each row
    for (int64_t row = 0; row < shape.rows(); ++row)
      positions.push_back(static_cast<int32_t>(first + row % shape.seq_len));
    const Memory again = upload(qkv, shape.type), positions_there = upload_ints(positions);
    op = {.shape = shape, .qkv = again.data(), .table = table_m.as<float>(), .rotary_dim = turned};
    op.row_positions = positions_there.as<int32_t>();
    run({&again}, [&] { kernels().rope(op, launch()); });
    expect_close(download(again), expected, tolerance(shape.type), "by row");
  }
}

LOCKSTEP_ON_EVERY_DEVICE(AttentionTest);
INSTANTIATE_TEST_SUITE_P(Devices, FlashTest, ::testing::Values("cuda"),
                         [](const auto& device) { return device.param; });

}  // namespace
}  // namespace lockstep::kernels::testing
