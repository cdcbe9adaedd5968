#include "lockstep/kernels/optimizer/optimizer.h"

#include <fmt/format.h>

#include <numeric>

#include "lockstep/kernels/reduce/hash_word.h"
#include "lockstep/kernels/testing.h"

namespace lockstep::kernels::testing {
namespace {

// Runs of several sizes, one of them a full chunk, with gaps that no kernel may touch.
const std::vector<Chunk> kChunks = {
    {0, 1, 0.1f}, {1, 7, 0, 0.5f}, {16, 100, 0.1f, 3.0f}, {128, static_cast<int32_t>(kChunk), 0.2f}};
constexpr int64_t kCount = 128 + kChunk + 5;

class OptimizerTest : public KernelTest {};

TEST_P(OptimizerTest, SquareSumsAreOfEachChunk) {
  const Values gradient = rounded(random_values(kCount, 1), DType::f32);
  Values expected;
  for (const Chunk& chunk : kChunks) {
    double sum = 0;
    for (int64_t i = 0; i < chunk.count; ++i)
      sum += std::pow(gradient[static_cast<size_t>(chunk.begin + i)], 2);
    expected.push_back(sum);
  }
  const Memory gradient_m = upload(gradient, DType::f32), chunks = upload_plain(kChunks);
  const auto count = static_cast<int64_t>(kChunks.size());
  const Memory sums = garbage(count, DType::f64);
  const SquareSums op{gradient_m.as<float>(), chunks.as<Chunk>(), count, sums.as<double>()};
  run({&sums}, [&] { kernels().square_sums(op, launch()); });
  expect_close(download(sums), expected, {1e-13, 0});
}

struct FinishCase {
  const char* name;
  double square_sum;
  StepState before;
  NormPolicy policy;
  StepState after;
};

StepState state_of(int64_t applied, int64_t skipped, float scale, int32_t good) {
  StepState state;
  state.applied = applied;
  state.skipped = skipped;
  state.loss_scale = scale;
  state.good_steps = good;
  state.beta1_power = std::pow(0.5, static_cast<double>(applied));
  state.beta2_power = std::pow(0.25, static_cast<double>(applied));
  return state;
}

StepState with_results(StepState state, double grad_norm, double clip, uint32_t apply) {
  state.grad_norm = grad_norm;
  state.clip = static_cast<float>(clip);
  state.apply = apply;
  return state;
}

// More chunks than one thread, and than one round of threads, folds; whole numbers, whose sums are exact.
TEST_P(OptimizerTest, NormFinishFoldsEveryChunk) {
  const Memory losses = upload({0}, DType::f64), inputs = upload_plain<StepInputs>({{.valid_tokens = 1}});
  for (const int64_t count : {1, 63, 64, 65, 128, 5000, 16384, 16385, 40000}) {
    SCOPED_TRACE(count);
    std::mt19937 generator(static_cast<uint32_t>(count));
    Values values(static_cast<size_t>(count));
    for (double& value : values) value = generator() % 1000 + 1;
    const Memory sums = upload(values, DType::f64);
    const Memory state = upload_plain<StepState>({state_of(0, 0, 1, 0)});
    const NormFinish op{sums.as<double>(),     count, losses.as<double>(), 1, inputs.as<StepInputs>(),
                        state.as<StepState>(), {}};
    run({&state}, [&] { kernels().norm_finish(op, launch()); });
    EXPECT_DOUBLE_EQ(download_plain<StepState>(state).grad_norm,
                     std::sqrt(std::accumulate(values.begin(), values.end(), 0.0)));
  }
}

TEST_P(OptimizerTest, NormFinishFollowsItsPolicy) {
  const NormPolicy plain{.beta1 = 0.5f, .beta2 = 0.25f};
  NormPolicy clipped = plain, dynamic = plain;
  clipped.max_norm = 2;
  dynamic.dynamic_scale = true;
  dynamic.growth_interval = 3;
  dynamic.max_scale = 1024;
  NormPolicy stops = plain, dynamic_stops = dynamic;
  stops.stops = dynamic_stops.stops = true;
  const StepState skipped = with_results(state_of(2, 1, 8, 5), INFINITY, 1, 0);
  StepState no_loss = state_of(2, 1, 8, 1);
  no_loss.loss = NAN;
  const FinishCase cases[] = {
      {"no clipping", 16, state_of(0, 0, 1, 0), plain, with_results(state_of(1, 0, 1, 1), 4, 1, 1)},
      {"clipped", 16, state_of(4, 1, 1, 2), clipped,
       with_results(state_of(5, 1, 1, 3), 4, 2 / (4 + 1e-6), 1)},
      {"within the limit", 1, state_of(0, 0, 1, 0), clipped, with_results(state_of(1, 0, 1, 1), 1, 1, 1)},
      {"scaled", 64, state_of(0, 0, 8, 0), clipped, with_results(state_of(1, 0, 8, 1), 1, 1.0 / 8, 1)},
      {"not finite", INFINITY, state_of(2, 0, 8, 5), plain,
       with_results(state_of(2, 1, 8, 5), INFINITY, 1.0 / 8, 0)},
      {"scale backs off", INFINITY, state_of(2, 0, 8, 2), dynamic,
       with_results(state_of(2, 1, 4, 0), INFINITY, 1.0 / 8, 0)},
      {"scale grows", 64, state_of(2, 0, 8, 2), dynamic, with_results(state_of(3, 0, 16, 0), 1, 1.0 / 8, 1)},
      {"scale has a ceiling", 0, state_of(2, 0, 1024, 2), dynamic,
       with_results(state_of(3, 0, 1024, 0), 0, 1.0 / 1024, 1)},
      // The host has not yet read of the step before, which ends the run.
      {"behind the end", 64, skipped, stops, with_results(state_of(2, 2, 8, 5), 1, 1.0 / 8, 0)},
      {"behind a loss of no number", 64, no_loss, dynamic_stops,
       with_results(state_of(2, 2, 4, 0), 1, 1.0 / 8, 0)},
      {"behind one that is skipped", 64, skipped, plain, with_results(state_of(3, 1, 8, 6), 1, 1.0 / 8, 1)},
      {"behind one that the scaler skips", 64, state_of(2, 1, 8, 1), dynamic_stops,
       with_results(state_of(3, 1, 8, 2), 1, 1.0 / 8, 1)},
  };
  const StepInputs inputs{.step = 9, .valid_tokens = 10};
  const Memory losses = upload({1, 2, 3.5, 0}, DType::f64), inputs_m = upload_plain<StepInputs>({inputs});
  for (const FinishCase& c : cases) {
    SCOPED_TRACE(c.name);
    const Memory sums = upload({c.square_sum / 2, c.square_sum / 2}, DType::f64);
    const Memory state_m = upload_plain<StepState>({c.before});
    const NormFinish op{sums.as<double>(),       2,       losses.as<double>(), 3, inputs_m.as<StepInputs>(),
                        state_m.as<StepState>(), c.policy};
    run({&state_m}, [&] { kernels().norm_finish(op, launch()); });
    const auto state = download_plain<StepState>(state_m);
    EXPECT_EQ(state.applied, c.after.applied);
    EXPECT_EQ(state.skipped, c.after.skipped);
    EXPECT_EQ(state.loss_scale, c.after.loss_scale);
    EXPECT_EQ(state.good_steps,
              c.policy.dynamic_scale || c.after.apply != 0 ? c.after.good_steps : state.good_steps);
    EXPECT_EQ(state.beta1_power, c.after.beta1_power);
    EXPECT_EQ(state.beta2_power, c.after.beta2_power);
    EXPECT_DOUBLE_EQ(state.grad_norm, c.after.grad_norm);
    EXPECT_FLOAT_EQ(state.clip, c.after.clip);
    EXPECT_EQ(state.apply, c.after.apply);
    EXPECT_DOUBLE_EQ(state.loss, 0.65);
    EXPECT_EQ(state.step, 9u);
  }
}

// One element, as optimizer.h writes the rules.
void update_reference(UpdateRule rule, double g, double decay, double lr, double& p, double& m, double& v) {
  constexpr double kBeta1 = 0.9f, kBeta2 = 0.95f, kEpsilon = 1e-8f;
  if (rule == UpdateRule::adamw) {
    m = kBeta1 * m + (1 - kBeta1) * g;
    v = kBeta2 * v + (1 - kBeta2) * g * g;
    const double mhat = m / (1 - std::pow(kBeta1, 3)), vhat = v / (1 - std::pow(kBeta2, 3));
    p -= lr * (mhat / (std::sqrt(vhat) + kEpsilon) + decay * p);
  } else if (rule == UpdateRule::sgd) {
    m = kBeta1 * m + g;
    p -= lr * (m + decay * p);
  } else {
    const double u = kBeta1 * m + (1 - kBeta1) * g;
    p -= lr * ((u > 0 ? 1 : u < 0 ? -1 : 0) + decay * p);
    m = kBeta2 * m + (1 - kBeta2) * g;
  }
}

TEST_P(OptimizerTest, UpdateFollowsTheRule) {
  const Values p0 = rounded(random_values(kCount, 1), DType::f32),
               g = rounded(random_values(kCount, 2), DType::f32);
  const Values m0 = rounded(random_values(kCount, 3), DType::f32);
  Values v0 = rounded(random_values(kCount, 4), DType::f32);
  for (double& value : v0) value = std::abs(value);
  StepState state;
  state.beta1_power = std::pow(static_cast<double>(0.9f), 3);
  state.beta2_power = std::pow(static_cast<double>(0.95f), 3);
  state.clip = 0.5f;
  const StepInputs inputs{.learning_rate = 0.01f};
  for (const UpdateRule rule : {UpdateRule::adamw, UpdateRule::sgd, UpdateRule::lion}) {
    for (const DType type : kEdgeTypes) {
      for (const uint32_t apply : {1u, 0u}) {
        SCOPED_TRACE(fmt::format("rule {} {} apply {}", static_cast<int>(rule), name_of(type), apply));
        state.apply = apply;
        Values p = p0, m = m0, v = v0;
        for (const Chunk& chunk : kChunks) {
          for (int64_t i = chunk.begin; apply != 0 && i < chunk.begin + chunk.count; ++i) {
            const auto at = static_cast<size_t>(i);
            const double lr = inputs.learning_rate * chunk.rate;
            update_reference(rule, g[at] * 0.5, chunk.weight_decay, lr, p[at], m[at], v[at]);
          }
        }
        const Memory p_m = upload(p0, DType::f32), g_m = upload(g, DType::f32), m_m = upload(m0, DType::f32);
        const Memory v_m = upload(v0, DType::f32), chunks = upload_plain(kChunks);
        const Memory compute = upload(Values(static_cast<size_t>(kCount), 9), type);
        const Memory inputs_m = upload_plain<StepInputs>({inputs}),
                     state_m = upload_plain<StepState>({state});
        Update op{.rule = rule, .master = p_m.as<float>(), .gradient = g_m.as<float>(), .m = m_m.data()};
        op.v = rule == UpdateRule::adamw ? v_m.data() : nullptr;
        op.compute = type == DType::f32 ? nullptr : compute.data();
        op.compute_type = type;
        op.chunks = chunks.as<Chunk>();
        op.chunk_count = static_cast<int64_t>(kChunks.size());
        op.inputs = inputs_m.as<StepInputs>();
        op.state = state_m.as<StepState>();
        run({&p_m, &m_m, &v_m, &compute}, [&] { kernels().update(op, launch()); });
        expect_close(download(p_m), p, tolerance(DType::f32), "master");
        expect_close(download(m_m), m, tolerance(DType::f32), "m");
        if (rule == UpdateRule::adamw) expect_close(download(v_m), v, tolerance(DType::f32), "v");
        if (op.compute == nullptr || apply == 0) continue;
        const Values copied = download(compute), master = download(p_m);
        for (const Chunk& chunk : kChunks) {
          for (int64_t i = chunk.begin; i < chunk.begin + chunk.count; ++i) {
            ASSERT_EQ(copied[static_cast<size_t>(i)], round_to(type, master[static_cast<size_t>(i)])) << i;
          }
        }
        EXPECT_EQ(copied.back(), 9) << "outside every chunk";
      }
    }
  }
}

// An update with moments in bf16: which draws an element gets depends on its chunk's number in the model
// alone.
struct HalfCase {
  UpdateRule rule;
  std::vector<Chunk> chunks;
  int64_t first_chunk;
  uint64_t step;
};

class HalfMoments : public OptimizerTest {
 protected:
  // Bytes of the masters, of m and of v afterwards.
  std::vector<std::vector<char>> updated(const HalfCase& c, const Values& g, const Values& m,
                                         const Values& v) {
    StepState state;
    state.beta1_power = 0.5, state.beta2_power = 0.5;
    const StepInputs inputs{.seed = 7, .step = c.step, .learning_rate = 0.01f};
    const Memory p_m = upload(Values(g.size(), 1), DType::f32), g_m = upload(g, DType::f32);
    const Memory m_m = upload(m, DType::bf16), v_m = upload(v, DType::bf16), chunks = upload_plain(c.chunks);
    const Memory inputs_m = upload_plain<StepInputs>({inputs}), state_m = upload_plain<StepState>({state});
    Update op{.rule = c.rule, .master = p_m.as<float>(), .gradient = g_m.as<float>(), .m = m_m.data()};
    op.v = c.rule == UpdateRule::adamw ? v_m.data() : nullptr;
    op.moment_type = DType::bf16;
    op.first_chunk = c.first_chunk;
    op.compute_type = DType::f32;
    op.chunks = chunks.as<Chunk>();
    op.chunk_count = static_cast<int64_t>(c.chunks.size());
    op.inputs = inputs_m.as<StepInputs>();
    op.state = state_m.as<StepState>();
    run({&p_m, &m_m, &v_m}, [&] { kernels().update(op, launch()); });
    return {p_m.bytes(), m_m.bytes(), v_m.bytes()};
  }
  static double value_at(const std::vector<char>& bytes, int64_t i) {
    uint16_t half;
    std::memcpy(&half, bytes.data() + 2 * i, 2);
    const uint32_t bits = static_cast<uint32_t>(half) << 16;
    float value;
    std::memcpy(&value, &bits, 4);
    return value;
  }
};

TEST_P(HalfMoments, FirstIsNearestSecondKeepsItsMean) {
  // v moves by less than half a last place: nearest rounding would leave it where it is.
  const int64_t count = kChunk;
  const auto size = static_cast<size_t>(count);
  const Values g = rounded(random_values(count, 2), DType::f32),
               m = rounded(random_values(count, 3), DType::bf16);
  const double before = 1.5;
  const auto bytes =
      updated({UpdateRule::adamw, {{0, static_cast<int32_t>(count), 0}}, 3, 5}, g, m, Values(size, before));
  double sum = 0, expected = 0;
  for (int64_t i = 0; i < count; ++i) {
    const auto at = static_cast<size_t>(i);
    const double exact_m = static_cast<double>(0.9f) * m[at] + (1 - static_cast<double>(0.9f)) * g[at];
    const double exact_v =
        static_cast<double>(0.95f) * before + (1 - static_cast<double>(0.95f)) * g[at] * g[at];
    ASSERT_NEAR(value_at(bytes[1], i), exact_m, std::abs(exact_m) * 0x1p-8 + 1e-7) << i;
    ASSERT_NEAR(value_at(bytes[2], i), exact_v, exact_v * 0x1p-7 + 1e-6) << i;
    sum += value_at(bytes[2], i);
    expected += exact_v;
  }
  // The error of one rounding is at most a last place, 2^-7; that of their mean is a 256th of it.
  EXPECT_NEAR(sum / static_cast<double>(count), expected / static_cast<double>(count),
              1.5 * 0x1p-7 * 4 / 256);
}

// The same number everywhere, halfway between two of its type: each element is rounded by a draw of its own.
TEST_P(HalfMoments, NeighboursAreRoundedApart) {
  const auto full = static_cast<int32_t>(kChunk);
  const Values zeros(static_cast<size_t>(kChunk), 0);
  const double before = 1.5, grown = 0x1p-8 / (1 - static_cast<double>(0.95f));
  const Values g(static_cast<size_t>(kChunk),
                 std::sqrt(before + grown));  // v becomes before + 2^-8, half a place
  for (const int32_t first : {0, 1}) {        // four at a time, and one by one
    const auto bytes = updated({UpdateRule::adamw, {{first, full - first, 0}}, 0, 3}, g, zeros,
                               Values(static_cast<size_t>(kChunk), before));
    int apart = 0, quads = 0;
    for (int64_t i = 4; i + 4 <= kChunk; i += 4, ++quads) {
      int up = 0;
      for (int64_t j = i; j < i + 4; ++j) up += value_at(bytes[2], j) > before;
      apart += up > 0 && up < 4;
    }
    EXPECT_GT(apart, quads * 3 / 4) << "first " << first << ": of " << quads;  // 7 of 8 are expected
  }
}

TEST_P(HalfMoments, DependOnNoLayout) {
  const int64_t count = 2 * kChunk;
  const Values g = rounded(random_values(count, 2), DType::f32),
               m = rounded(random_values(count, 3), DType::bf16);
  Values v = rounded(random_values(count, 4), DType::bf16);
  for (double& value : v) value = std::abs(value);
  const auto full = static_cast<int32_t>(kChunk);
  for (const UpdateRule rule : {UpdateRule::adamw, UpdateRule::sgd, UpdateRule::lion}) {
    SCOPED_TRACE(static_cast<int>(rule));
    const auto whole = updated({rule, {{0, full, 0}, {kChunk, full, 0}}, 4, 9}, g, m, v);
    // The second chunk alone, as a rank that holds only this shard has it.
    const auto cut = [](const Values& all) { return Values(all.begin() + kChunk, all.end()); };
    const auto part = updated({rule, {{0, full, 0}}, 5, 9}, cut(g), cut(m), cut(v));
    for (size_t k = 0; k < 3; ++k) {
      if (k == 2 && rule != UpdateRule::adamw) continue;
      const std::vector<char> second(whole[k].begin() + static_cast<int64_t>(whole[k].size() / 2),
                                     whole[k].end());
      EXPECT_EQ(second, part[k]) << k;
    }
    if (rule != UpdateRule::adamw) continue;
    EXPECT_NE(updated({rule, {{0, full, 0}}, 6, 9}, cut(g), cut(m), cut(v))[2], part[2]) << "another chunk";
    EXPECT_NE(updated({rule, {{0, full, 0}}, 5, 8}, cut(g), cut(m), cut(v))[2], part[2]) << "another step";
  }
}

LOCKSTEP_ON_EVERY_DEVICE(HalfMoments);

TEST_P(OptimizerTest, HashIsTheDocumentedSumAndSeesEveryBit) {
  Values values = rounded(random_values(kCount, 5), DType::f32);
  const Memory chunks = upload_plain(kChunks);
  const auto count = static_cast<int64_t>(kChunks.size());
  const auto hash = [&] {
    const Memory there = upload(values, DType::f32), hashes = garbage(2 * count, DType::i64);
    const HashChunks op{there.as<float>(), chunks.as<Chunk>(), count, hashes.as<uint64_t>()};
    run({&hashes}, [&] { kernels().hash_chunks(op, launch()); });
    std::vector<uint64_t> result(static_cast<size_t>(2 * count));
    const std::vector<char> bytes = hashes.bytes();
    std::memcpy(result.data(), bytes.data(), bytes.size());
    return result;
  };
  std::vector<uint64_t> expected;
  for (const Chunk& chunk : kChunks) {
    for (const uint64_t salt : kHashSalts) {
      uint64_t sum = 0;
      for (int64_t i = 0; i < chunk.count; ++i) {
        const auto value = static_cast<float>(values[static_cast<size_t>(chunk.begin + i)]);
        uint32_t word;
        std::memcpy(&word, &value, 4);
        sum += hash_word(word, static_cast<uint64_t>(i), salt);
      }
      expected.push_back(sum);
    }
  }
  EXPECT_EQ(hash(), expected);
  std::swap(values[20], values[21]);  // in the third chunk
  const std::vector<uint64_t> swapped = hash();
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(swapped[i] == expected[i], i / 2 != 2) << i;
}

LOCKSTEP_ON_EVERY_DEVICE(OptimizerTest);

}  // namespace
}  // namespace lockstep::kernels::testing
