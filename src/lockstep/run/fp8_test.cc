// What `precision.compute = "fp8"` means for a run: how far it is from bf16, what it refuses, what is
// recorded.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/run/session/record.h"
#include "lockstep/run/testing.h"

namespace lockstep::run {
namespace {

using Words = std::vector<std::string>;

Words with(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

const Words kFamilies[] = {{}, {"model.family=llama", "model.kv_heads=1"}, {"model.family=mlp"}};

// Small, but no matrix is a single block: 160 x 160 has two by two of them.
const Words kWider = {"model.hidden=160", "model.heads=2", "data.seq_len=80", "model.vocab=192"};

TEST(Fp8Run, FollowsBf16WithEveryScaling) {
  for (const Words& family : kFamilies) {
    const Words recipe = with(family, kWider);
    Session bf16 = tiny_session(with(recipe, {"precision.compute=bf16"}));
    const double start = one_step(bf16, 0, 0.001f).loss, norm = one_step(bf16, 1, 0.001f).grad_norm;
    hash_after(bf16, 6, 0.001f);
    const double end = one_step(bf16, 6, 0.001f).loss;
    for (const char* scaling : {"tensor", "row", "block"}) {
      for (const char* gradients : {"e5m2", "e4m3"}) {
        SCOPED_TRACE((family.empty() ? "gpt2 " : family[0] + " ") + scaling + " " + gradients);
        Session fp8 = tiny_session(with(recipe, {"precision.compute=fp8", "precision.fp8_head=true",
                                                 std::string("precision.fp8_scaling=") + scaling,
                                                 std::string("precision.fp8_gradients=") + gradients}));
        EXPECT_NEAR(one_step(fp8, 0, 0.001f).loss, start, 0.01);
        EXPECT_NEAR(one_step(fp8, 1, 0.001f).grad_norm, norm, 0.08 * norm);
        hash_after(fp8, 6, 0.001f);
        EXPECT_NEAR(one_step(fp8, 6, 0.001f).loss, end, 0.05);
      }
    }
  }
}

// Where every layer and the head stay bf16, nothing is left of fp8: that keys reach every product.
TEST(Fp8Run, SkippedLayersAndHeadAreBf16ToTheBit) {
  for (const Words& family : kFamilies) {
    Session bf16 = tiny_session(with(family, {"precision.compute=bf16"}));
    const std::string expected = hash_after(bf16, 3);
    const auto hash = [&](const Words& keys) {
      Session session = tiny_session(with(with(family, {"precision.compute=fp8"}), keys));
      return hash_after(session, 3);
    };
    EXPECT_EQ(hash({"precision.fp8_skip_first=1", "precision.fp8_skip_last=1", "precision.fp8_head=false"}),
              expected);
    for (const Words& less : {Words{"precision.fp8_skip_first=1", "precision.fp8_head=false"},
                              Words{"precision.fp8_skip_last=1", "precision.fp8_head=false"},
                              Words{"precision.fp8_skip_first=2", "precision.fp8_head=true"}}) {
      EXPECT_NE(hash(less), expected) << less[0];
    }
  }
}

TEST(Fp8Run, LogitsInChunksAreScaledChunkByChunk) {
  for (const char* chunk : {"16", "48", "1024"}) {  // of 160 tokens: even, with a rest, all at once
    Session session = tiny_session(with(kWider, {"precision.compute=fp8", "precision.fp8_head=true",
                                                 std::string("memory.logits_chunk=") + chunk}));
    EXPECT_TRUE(std::isfinite(one_step(session, 0, 0.01f).grad_norm)) << chunk;
    EXPECT_NEAR(one_step(session, 1, 0.01f).loss, std::log(192.0), 0.6) << chunk;
  }
}

TEST(Fp8Run, RefusesWhatItCannotDo) {
  struct Row {
    Words words;
    int number;
    const char* said;
  };
  for (const Row& row : {Row{{"model.hidden=24", "model.heads=3"}, 186, "model.hidden"},
                         Row{{"model.ffn=40"}, 186, "model.ffn"},
                         Row{{"model.vocab=1000", "precision.fp8_head=true"}, 186, "model.vocab"},
                         Row{{"memory.logits_chunk=20", "precision.fp8_head=true"}, 186, "logits_chunk"},
                         Row{{"data.seq_len=7"}, 186, "tokens in a slice"},
                         Row{{"model.family=llama", "model.hidden=32", "model.heads=2", "model.kv_heads=1",
                              "model.head_dim=4", "model.ffn=32"},
                             186,
                             "the attention output"}}) {
    try {
      make_plan(tiny_recipe(with({"precision.compute=fp8"}, row.words)), {});
      FAIL() << row.said << " was accepted";
    } catch (const base::ConfigError& error) {
      EXPECT_EQ(error.number(), row.number) << error.what();
      EXPECT_NE(std::string(error.what()).find(row.said), std::string::npos) << error.what();
    }
  }
}

// Each rank, or strand, multiplies parts whose sizes are multiples too.
TEST(Fp8Run, RefusesPartsItCannotMultiply) {
  struct Row {
    Words words;
    const char* said;
  };
  for (const Row& row :
       {Row{{"parallel.tensor=2", "model.hidden=64", "model.heads=4", "model.ffn=48"},
            "for each of 2 tensor ranks (parallel.tensor), but model.ffn"},
        Row{{"parallel.tensor=2", "batch.product_strands=4", "model.heads=4", "model.hidden=32"},
            "for each of 4 product strands"},
        Row{{"parallel.tensor=2", "model.hidden=64", "model.heads=4", "precision.fp8_head=true",
             "model.vocab=1008"},
            "model.vocab"},
        Row{{"parallel.context=2", "data.seq_len=8", "batch.slices=8"}, "on one of 2 context ranks"},
        Row{{"batch.sequence_strands=4", "parallel.context=2", "data.seq_len=8", "batch.slices=8",
             "batch.strands=8"},
            "on one of 4 sequence strands"}}) {
    try {
      make_plan(tiny_recipe(with({"precision.compute=fp8"}, row.words)), {},
                {.seat = {.rank = 0, .world = 2}});
      FAIL() << row.said << " was accepted";
    } catch (const base::ConfigError& error) {
      EXPECT_EQ(error.number(), 186) << error.what();
      EXPECT_NE(std::string(error.what()).find(row.said), std::string::npos) << error.what();
    }
  }
}

TEST(Fp8Run, RecordNamesEverySettingThatChangesBits) {
  const auto record = [](const Words& keys) {
    return make_record(make_plan(tiny_recipe(with({"precision.compute=fp8"}, keys)), {}));
  };
  const nlohmann::json base = record({});
  for (const char* key : {"precision.fp8_scaling=row", "precision.fp8_gradients=e4m3",
                          "precision.fp8_fast_sums=none", "precision.fp8_skip_first=1",
                          "precision.fp8_skip_last=1", "precision.fp8_head=true", "precision.compute=bf16"}) {
    const std::vector<std::string> changes = record_changes(base, record({key}));
    ASSERT_EQ(changes.size(), 1u) << key;
    EXPECT_NE(changes[0].find("compute precision"), std::string::npos) << changes[0];
  }
}

}  // namespace
}  // namespace lockstep::run
