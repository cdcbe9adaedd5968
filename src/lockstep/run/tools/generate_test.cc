// Text that is drawn against the softmax of a model in fp64: frequencies at several temperatures, and who may
// be drawn.
#include "lockstep/run/tools/generate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>

#include "lockstep/base/error.h"
#include "lockstep/base/philox.h"
#include "lockstep/run/reference/sampling.h"
#include "lockstep/run/reference/session.h"
#include "lockstep/run/testing.h"

namespace lockstep::run {
namespace {

using Strings = std::vector<std::string>;

const Strings kSmall = {"model.layers=2",         "model.hidden=12",     "model.heads=2",
                        "data.seq_len=8",         "model.context=16",    "model.init_std=0.3",
                        "batch.global=1",         "batch.slices=1",      "model.dropout=0.5",
                        "precision.compute=fp32", "precision.tf32=false"};

Strings words_of(const std::string& family) {
  Strings words = kSmall;
  words.push_back("model.family=" + family);
  words.push_back("run.device=" + test_device());
  return words;
}

struct Model {
  reference::Words words;
  Session session;
  reference::Weights weights;
  Generator generator;
  explicit Model(const std::string& family)
      : words(words_of(family)),
        session(make_plan(recipe::read_recipe({.file = "", .overrides = words_of(family)}), {})),
        weights((reference::stir(session), reference::read_back(session))),
        generator(session, {}) {}

  // Of what follows a text no longer than the context. Only tokens that the data has are drawn.
  std::vector<double> logits_after(const std::vector<int32_t>& text) {
    std::vector<double> all = reference::logits_after(words, weights, text);
    all.resize(static_cast<size_t>(session.plan.dataset->vocab()));
    return all;
  }
  std::vector<int32_t> draw(const std::vector<int32_t>& prompt, const SamplingOptions& options) {
    std::vector<int32_t> drawn;
    generator.run({{prompt}}, options,
                  [&](size_t, const Drawn& one) { return drawn.push_back(one.token), true; });
    return drawn;
  }
};

// Families whose layers differ in how they look back.
struct Family {
  const char* name;
  Strings words;
};
const std::vector<Family> kFamilies = {
    {"gpt2", {}},
    {"llama", {"model.kv_heads=1"}},
    {"mistral", {"model.sliding_window=5"}},
    {"qwen3", {"model.head_dim=8"}},
    {"gemma2",
     {"model.sliding_window=4", "model.attn_softcap=3", "model.final_softcap=5", "model.head_dim=8"}},
    {"phi", {"model.partial_rotary=0.5", "model.hidden=16"}},
    {"olmo2", {}},
    {"smollm3", {"model.no_rope_every=2"}},
    {"gpt_neox", {"model.partial_rotary=0.5", "model.hidden=16"}},
    {"mlp", {}},
};

std::unique_ptr<Session> session_of(const Family& family, const Strings& more = {}) {
  Strings words = words_of(family.name);
  words.insert(words.end(), family.words.begin(), family.words.end());
  words.insert(words.end(), more.begin(), more.end());
  auto session =
      std::make_unique<Session>(make_plan(recipe::read_recipe({.file = "", .overrides = words}), {}));
  reference::stir(*session);
  return session;
}

// Logits behind every token of a text, read in passes of so many tokens.
std::vector<std::vector<float>> read_in_passes(Decoder& decoder, const std::vector<int32_t>& text,
                                               int64_t chunk, int32_t slot, bool alone) {
  std::vector<std::vector<float>> all;
  for_chunks(text, slot, chunk, [&](std::span<const DecodeRow> rows, bool) {
    decoder.pass(rows, {.logits = static_cast<int64_t>(rows.size()), .alone = alone},
                 [&](int64_t, int64_t count, const float* logits) {
                   for (int64_t k = 0; k < count; ++k)
                     all.emplace_back(logits + k * decoder.vocab(), logits + (k + 1) * decoder.vocab());
                 });
  });
  return all;
}

std::vector<int32_t> some_text(size_t length, int seed) {
  std::vector<int32_t> text;
  for (size_t i = 0; i < length; ++i)
    text.push_back(static_cast<int32_t>(base::philox(static_cast<uint64_t>(seed), i, 5).x % 90));
  return text;
}

TEST(Decode, APromptReadAtOnceGivesWhatItGivesTokenByToken) {
  for (const Family& family : kFamilies) {
    const auto session = session_of(family, {"model.context=96"});
    Decoder decoder(*session, {.slots = 3, .capacity = 96});
    const std::vector<int32_t> text = some_text(77, 3);
    const auto one = read_in_passes(decoder, text, 1, 0, true);
    for (const int64_t chunk : {5, 32, 96}) {
      const auto many = read_in_passes(decoder, text, chunk, 2, false);
      ASSERT_EQ(many.size(), one.size());
      for (size_t t = 0; t < one.size(); ++t) {
        for (size_t v = 0; v < one[t].size(); ++v)
          ASSERT_NEAR(many[t][v], one[t][v], 2e-4) << family.name << " chunk " << chunk << " token " << t;
      }
    }
  }
}

// On the CPU to the last bit: it does not matter who else is in a pass, in which slot, in which order.
TEST(Decode, ATextHasTheSameBitsInAnyCompany) {
  if (test_device() != "cpu") GTEST_SKIP() << "other devices promise it within rounding";
  for (const Family& family : kFamilies) {
    for (const char* compute : {"fp32", "bf16"}) {
      const auto session =
          session_of(family, {"model.context=64", std::string("precision.compute=") + compute});
      Decoder decoder(*session, {.slots = 5, .capacity = 64});
      const std::vector<int32_t> text = some_text(40, 7);
      const auto alone = read_in_passes(decoder, text, 1, 0, true);
      std::vector<std::vector<int32_t>> others;
      for (int k = 0; k < 5; ++k) others.push_back(k == 3 ? text : some_text(40, 20 + k));
      for (size_t t = 0; t < text.size(); ++t) {
        std::vector<DecodeRow> rows;
        for (int32_t slot : {4, 3, 0, 1, 2}) {
          if (slot == 3 || static_cast<int32_t>(t) % (slot + 2) != 1)
            rows.push_back({others[static_cast<size_t>(slot)][t], slot, static_cast<int32_t>(t)});
        }
        decoder.pass(rows, {.logits = static_cast<int64_t>(rows.size())},
                     [&](int64_t first, int64_t count, const float* logits) {
                       for (int64_t k = 0; k < count; ++k) {
                         if (rows[static_cast<size_t>(first + k)].slot != 3) continue;
                         const std::vector<float> here(logits + k * decoder.vocab(),
                                                       logits + (k + 1) * decoder.vocab());
                         ASSERT_EQ(here, alone[t]) << family.name << " " << compute << " token " << t;
                       }
                     });
      }
    }
  }
}

struct Told {
  std::vector<std::vector<int32_t>> tokens;
  std::vector<std::vector<double>> logprobs;
};

Told tell(Session& session, const std::vector<Request>& requests, const SamplingOptions& options,
          int64_t batch) {
  Generator generator(session, {.batch = batch});
  Told told;
  told.tokens.resize(requests.size());
  told.logprobs.resize(requests.size());
  generator.run(requests, options, [&](size_t request, const Drawn& drawn) {
    told.tokens[request].push_back(drawn.token);
    told.logprobs[request].push_back(drawn.logprob);
    return drawn.token != 7;  // an end, so that texts have different lengths
  });
  return told;
}

// Prompts of several lengths, several samples of one, texts that end early and texts beyond the context.
TEST(Generate, TextsAreTheSameAloneAndInAnyBatch) {
  for (const Family& family : kFamilies) {
    if (std::string(family.name) == "mlp") continue;
    const auto session = session_of(family, {"model.context=24"});
    std::vector<Request> requests;
    for (const size_t length : {1, 24, 3, 9, 2, 17, 5})
      for (uint64_t sample = 0; sample < (length == 9 ? 3u : 1u); ++sample)
        requests.push_back({some_text(length, static_cast<int>(length)), sample});
    SamplingOptions options{.tokens = 40, .temperature = 0.9, .top_p = 0.95, .seed = 11, .logprobs = true};
    options.repetition_penalty = 1.1;
    const Told alone = tell(*session, requests, options, 1);
    EXPECT_NE(alone.tokens[3], alone.tokens[4]) << "two samples of one prompt";
    for (const int64_t batch : {2, 5, 16}) {
      const Told together = tell(*session, requests, options, batch);
      for (size_t i = 0; i < requests.size(); ++i) {
        SCOPED_TRACE(std::string(family.name) + " batch " + std::to_string(batch) + " text " +
                     std::to_string(i));
        if (test_device() == "cpu") {
          EXPECT_EQ(together.tokens[i], alone.tokens[i]);
          EXPECT_EQ(together.logprobs[i], alone.logprobs[i]);
        } else {
          EXPECT_EQ(together.tokens[i][0], alone.tokens[i][0]);
        }
      }
    }
  }
}

TEST(Generate, WeightsThatAreNotNumbersAreAnError) {
  const auto session = session_of(kFamilies[0]);
  const Parameters::Named first = session->parameters->named().front();
  std::vector<float> values(static_cast<size_t>(first.master.values.numel()), std::nanf(""));
  session->parameters->write(first.master.values, values.data());
  session->parameters->refresh_compute();
  EXPECT_THROW(tell(*session, {{{1, 2}}}, {.tokens = 3}, 1), base::RunError);
}

struct Row {
  double temperature;
  int64_t top_k;
};

TEST(Generate, DrawsAsOftenAsTheSoftmaxSays) {
  for (const char* family : {"gpt2", "llama", "mlp"}) {
    Model model(family);
    const std::vector<int32_t> prompt = {3, 17, 60, 9};
    const std::vector<double> logits = model.logits_after(prompt);
    for (const Row& row : {Row{1, 0}, Row{0.5, 0}, Row{2, 0}, Row{1, 5}, Row{0.7, 12}}) {
      SCOPED_TRACE(std::string(family) + " " + std::to_string(row.temperature) + " " +
                   std::to_string(row.top_k));
      const std::vector<double> chances =
          reference::chances(logits, row.temperature, static_cast<size_t>(row.top_k));
      constexpr int kDraws = 1500;
      std::vector<double> counts(chances.size(), 0);
      for (uint64_t seed = 1; seed <= kDraws; ++seed) {
        const SamplingOptions options{
            .tokens = 1, .temperature = row.temperature, .top_k = row.top_k, .seed = seed};
        const auto token = static_cast<size_t>(model.draw(prompt, options).at(0));
        ASSERT_LT(token, counts.size()) << "a token that the data has not";
        ++counts[token];
      }
      EXPECT_LT(reference::chi_square_excess(counts, chances, kDraws), 5);
      for (size_t i = 0; i < counts.size(); ++i) EXPECT_FALSE(chances[i] == 0 && counts[i] > 0) << i;
    }
  }
}

// With a cache of keys and values, token by token, and beyond the context, where the later half is read
// again.
TEST(Generate, TheLikeliestTokensFollowEachOther) {
  for (const char* family : {"gpt2", "llama", "mlp"}) {
    Model model(family);
    std::vector<int32_t> text = {5, 80, 2};
    const std::vector<int32_t> drawn = model.draw(text, {.tokens = 40, .temperature = 0});
    size_t first = 0;  // of what the model still sees
    for (size_t n = 0; n < drawn.size(); ++n) {
      const std::vector<double> logits =
          model.logits_after({text.begin() + static_cast<std::ptrdiff_t>(first), text.end()});
      const auto best = std::max_element(logits.begin(), logits.end());
      EXPECT_NEAR(logits[static_cast<size_t>(drawn[n])], *best, 1e-5) << family << " " << n;
      const bool full = text.size() - first == 16;
      text.push_back(drawn[n]);
      if (full) first = text.size() - 8;
    }
    EXPECT_EQ(drawn.size(), 40u);
  }
}

// Token n of a text is drawn by (seed, n): a whole text is as likely as the model says it is.
TEST(Generate, LongTextsAreAsLikelyAsTheModelSays) {
  Model model("gpt2");
  for (const double temperature : {0.6, 1.0, 1.7}) {
    reference::Surprise surprise;
    for (uint64_t seed = 1; seed <= 30; ++seed) {
      std::vector<int32_t> text = {static_cast<int32_t>(seed)};
      for (const int32_t token : model.draw(text, {.tokens = 15, .temperature = temperature, .seed = seed})) {
        surprise.add(reference::chances(model.logits_after(text), temperature, 0),
                     static_cast<size_t>(token));
        text.push_back(token);
      }
    }
    EXPECT_LT(std::fabs(surprise.deviations()), 5) << temperature;
  }
}

}  // namespace
}  // namespace lockstep::run
