// Documents that share a sample know nothing of each other: each has the losses that it has alone. To
// rounding: products of other sizes may be summed in another order (kernels/attention/documents_test.cc
// compares bits where sizes are the same).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "lockstep/base/refusal.h"
#include "lockstep/kernels/loss/loss.h"
#include "lockstep/model/layout.h"
#include "lockstep/run/loop/trainer.h"
#include "lockstep/run/testing.h"

namespace lockstep::run {
namespace {

using kernels::kIgnoredLabel;

constexpr int64_t kLength = 96, kSlices = 8, kVocab = 64;

// Tells how large samples are; the tests make their batches themselves.
class Nothing final : public data::Dataset {
 public:
  explicit Nothing(bool packed) : packed_(packed) {}
  int64_t vocab() const override { return kVocab; }
  int64_t samples(data::Split) const override { return 1; }
  bool has_documents() const override { return packed_; }
  void read(data::Split, int64_t, std::span<int32_t>, std::span<int32_t>) const override {}
  std::string describe() const override { return "nothing"; }
  uint64_t content_hash() const override { return 0; }

 private:
  bool packed_;
};

Session session_of(std::vector<std::string> overrides, bool pack, int64_t slices = kSlices) {
  if (overrides.back() != "precision.compute=bf16")
    for (const std::string& more : without_rounding()) overrides.push_back(more);
  for (const std::string& more :
       {std::string("model.hidden=64"), std::string("model.heads=4"),
        "data.seq_len=" + std::to_string(kLength), "batch.global=" + std::to_string(slices),
        "batch.slices=" + std::to_string(slices), std::string("batch.strands=1"),
        std::string("data.pack=") + (pack ? "true" : "false")})
    overrides.push_back(more);
  return Session(make_plan(tiny_recipe(std::move(overrides)), {.dataset = std::make_unique<Nothing>(pack)}));
}

struct Documents {
  std::vector<std::vector<int32_t>> all;  // tokens; the last of each is only predicted
  unsigned seed;
};

Documents random_documents() {
  Documents made{{}, std::random_device{}()};
  std::mt19937 random(made.seed);
  for (const int64_t length :
       {int64_t{13}, int64_t{1}, int64_t{40}, int64_t{1 + static_cast<int64_t>(random() % 30)}}) {
    std::vector<int32_t> tokens(static_cast<size_t>(length) + 1);
    for (int32_t& token : tokens) token = static_cast<int32_t>(random() % kVocab);
    made.all.push_back(std::move(tokens));
  }
  return made;
}

struct Words {
  std::vector<int32_t> inputs, labels, documents;
};

// A sample with this document alone, or with all of them and this one's labels.
void add_sample(const Documents& documents, size_t wanted, bool packed, int64_t only, Words& words) {
  std::vector<int32_t> inputs(kLength, 0), labels(kLength, kIgnoredLabel), begins(kLength);
  size_t place = 0;
  for (size_t d = 0; d < documents.all.size(); ++d) {
    if (!packed && d != wanted) continue;
    const std::vector<int32_t>& tokens = documents.all[d];
    for (size_t i = 0; i + 1 < tokens.size(); ++i) {
      inputs[place + i] = tokens[i];
      begins[place + i] = static_cast<int32_t>(place);
      if (d == wanted && (only < 0 || only == static_cast<int64_t>(i))) labels[place + i] = tokens[i + 1];
    }
    place += tokens.size() - 1;
  }
  std::fill(begins.begin() + static_cast<std::ptrdiff_t>(place), begins.end(), static_cast<int32_t>(place));
  words.inputs.insert(words.inputs.end(), inputs.begin(), inputs.end());
  words.labels.insert(words.labels.end(), labels.begin(), labels.end());
  if (packed) words.documents.insert(words.documents.end(), begins.begin(), begins.end());
}

std::vector<double> losses_of(Session& session, const Words& words) {
  session.executor->step({.seed = 1, .step = 0, .learning_rate = 0, .valid_tokens = 1},
                         {words.inputs, words.labels, words.documents});
  session.executor->read_oldest();
  return session.executor->read_losses();
}

// Of single tokens: eight at a time, one to a slice.
std::vector<double> token_losses(const Documents& documents, Session& session, bool packed) {
  std::vector<double> all;
  Words words;
  const auto finish = [&] {
    const size_t count = words.inputs.size() / kLength;
    if (count == 0) return;
    while (words.inputs.size() < static_cast<size_t>(kSlices * kLength))
      add_sample(documents, 0, packed, 0, words);
    const std::vector<double> losses = losses_of(session, words);
    all.insert(all.end(), losses.begin(), losses.begin() + static_cast<std::ptrdiff_t>(count));
    words = {};
  };
  for (size_t d = 0; d < documents.all.size(); ++d) {
    const auto last = static_cast<int64_t>(documents.all[d].size()) - 2;
    for (int64_t i = 0; i <= last; i = i < last && i + 3 > last ? last : i + 3) {
      add_sample(documents, d, packed, i, words);
      if (words.inputs.size() == static_cast<size_t>(kSlices * kLength)) finish();
    }
  }
  finish();
  return all;
}

const std::vector<std::vector<std::string>> kModels = {
    {"model.family=gpt2"},
    {"model.family=llama", "model.kv_heads=2"},
    {"model.family=qwen3", "model.kv_heads=2"},
    {"model.family=mistral", "model.kv_heads=2", "model.sliding_window=8"},
    {"model.family=gemma2", "model.kv_heads=2", "model.sliding_window=8"},
    {"model.family=llama", "memory.recompute=full"},
    {"model.family=llama", "precision.compute=bf16"},
};

class Packing : public testing::TestWithParam<std::vector<std::string>> {};

TEST_P(Packing, EveryTokenHasTheLossThatItHasAlone) {
  const Documents documents = random_documents();
  SCOPED_TRACE("seed " + std::to_string(documents.seed));
  Session packed = session_of(GetParam(), true), alone = session_of(GetParam(), false);
  EXPECT_EQ(packed.parameters->hash(), alone.parameters->hash());
  const std::vector<double> together = token_losses(documents, packed, true),
                            apart = token_losses(documents, alone, false);
  const bool rounds = GetParam().back() == "precision.compute=bf16";
  ASSERT_EQ(together.size(), apart.size());
  for (size_t i = 0; i < apart.size(); ++i)
    EXPECT_NEAR(together[i], apart[i],
                (rounds                   ? 3e-2
                 : test_device() == "cpu" ? 2e-6
                                          : 1e-5) *
                    apart[i])
        << "token " << i;
}

// The gradient of a sample is the sum of those of its documents; here sums are cut in other places.
TEST_P(Packing, GradientsAreThoseOfTheDocuments) {
  LS_NEEDS_HOST_MEMORY();
  if (GetParam().back() == "precision.compute=bf16") GTEST_SKIP() << "rounded in other places";
  const Documents documents = random_documents();
  SCOPED_TRACE("seed " + std::to_string(documents.seed));
  const auto count = static_cast<int64_t>(documents.all.size());
  Session packed = session_of(GetParam(), true, 1), alone = session_of(GetParam(), false, count);
  Words together, apart;
  add_sample(documents, 0, true, -1, together);
  for (size_t d = 0; d < documents.all.size(); ++d) {
    add_sample(documents, d, false, -1, apart);
    Words one;
    add_sample(documents, d, true, -1, one);
    for (size_t i = 0; i < one.labels.size(); ++i)
      together.labels[i] = std::max(together.labels[i], one.labels[i]);
  }
  losses_of(packed, together);
  losses_of(alone, apart);
  for (size_t block = 0; block < packed.plan.program.blocks.size(); ++block) {
    const device::Tensor a = gradient_of_block(packed, block), b = gradient_of_block(alone, block);
    ASSERT_EQ(a.numel(), b.numel());
    for (const model::PlacedParam& param : model::layout_of(packed.plan.model->blocks[block]).params) {
      double difference = 0, size = 0;
      for (int64_t i = param.offset; i < param.offset + param.spec.shape.numel(); ++i) {
        difference += std::pow(a.as<float>()[i] - b.as<float>()[i], 2);
        size += std::pow(b.as<float>()[i], 2);
      }
      EXPECT_GT(size, 0) << param.spec.name;
      EXPECT_LT(std::sqrt(difference / size), 1e-4) << param.spec.name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Packing, testing::ValuesIn(kModels), [](const auto& row) {
  return std::to_string(row.index) + "_" + row.param[0].substr(std::string("model.family=").size());
});

// A slice of conversations may have nothing to train on in it: it adds nothing, whatever it reads.
TEST(IgnoredLabels, OfAWholeSliceAddNothing) {
  LS_NEEDS_HOST_MEMORY();
  const Documents documents = random_documents();
  SCOPED_TRACE("seed " + std::to_string(documents.seed));
  std::vector<std::vector<float>> gradients;
  for (const int32_t token : {3, 5}) {
    Session session = session_of({"model.family=llama"}, false, 2);
    Words words;
    add_sample(documents, 2, false, -1, words);
    words.inputs.insert(words.inputs.end(), kLength, token);
    words.labels.insert(words.labels.end(), kLength, kIgnoredLabel);
    const std::vector<double> losses = losses_of(session, words);
    EXPECT_GT(losses[0], 0);
    EXPECT_EQ(losses[1], 0);
    const device::Tensor gradient = gradient_of_block(session, 1);
    gradients.emplace_back(gradient.as<float>(), gradient.as<float>() + gradient.numel());
  }
  EXPECT_EQ(gradients[0], gradients[1]);
}

// A sample of nothing but tokens that know nothing of each other, which packing never makes.
TEST(PackingRefusals, NameSamplesOfTooManyDocuments) {
  Session session = session_of({"model.family=llama"}, true, 1);
  Words words{std::vector<int32_t>(kLength, 1), std::vector<int32_t>(kLength, 1),
              std::vector<int32_t>(kLength)};
  for (size_t i = 0; i < words.documents.size(); ++i) words.documents[i] = static_cast<int32_t>(i);
  EXPECT_NE(base::refusal(271, [&] { losses_of(session, words); }).find("more than 32 documents"),
            std::string::npos);
}

// Samples of documents whose lengths differ from sample to sample; the last of each is padding.
class Packed final : public data::Dataset {
 public:
  int64_t vocab() const override { return kVocab; }
  int64_t samples(data::Split) const override { return 64; }
  bool has_documents() const override { return true; }
  void read(data::Split, int64_t index, std::span<int32_t> inputs, std::span<int32_t> labels) const override {
    for (size_t i = 0; i < inputs.size(); ++i) {
      const bool padding = i + 5 > inputs.size();
      inputs[i] = static_cast<int32_t>((static_cast<int64_t>(i) * (index + 3) + index) % kVocab);
      labels[i] = padding ? kIgnoredLabel : static_cast<int32_t>((inputs[i] * 5 + 1) % kVocab);
    }
  }
  void read_documents(data::Split, int64_t index, std::span<int32_t> begins) const override {
    int32_t begin = 0;
    for (size_t i = 0; i < begins.size(); ++i) {
      const int64_t length = 3 + (index * 7 + begin) % 23;
      if (static_cast<int64_t>(i) >= begin + length || i + 5 == begins.size())
        begin = static_cast<int32_t>(i);
      begins[i] = begin;
    }
  }
  std::string describe() const override { return "packed"; }
  uint64_t content_hash() const override { return 11; }
};

// Data, pipeline and ZeRO ranks have one rank's bits; ranks that share products or tokens its losses to
// rounding, also where documents begin on one rank and end on another.
TEST(PackedLayouts, HaveTheLossesOfOneRank) {
  if (test_device() != "cpu") GTEST_SKIP() << "ranks that are threads of one process: only on the CPU";
  struct Row {
    int world;
    std::vector<std::string> words;
    bool exact;
  };
  const Row rows[] = {
      {2, {}, true},
      {2, {"parallel.zero=3"}, true},
      {2, {"parallel.pipeline=2", "memory.recompute=full"}, true},
      {2, {"parallel.tensor=2"}, false},
      {2, {"parallel.context=2"}, false},
      {4, {"parallel.context=4"}, false},
      {4, {"parallel.context=2", "parallel.zero=3"}, false},
      {4, {"parallel.context=2", "parallel.tensor=2"}, false},
      {4, {"parallel.context=2", "parallel.pipeline=2", "memory.recompute=full"}, false},
      {2, {"parallel.context=2", "parallel.context_form=heads"}, false},
      {4, {"parallel.context=4", "parallel.context_form=heads"}, false},
      {4, {"parallel.context=2", "parallel.context_form=heads", "parallel.zero=3"}, false},
      {4, {"parallel.context=2", "parallel.context_form=heads", "parallel.tensor=2"}, false},
      {4, {"parallel.context=2", "parallel.context_form=heads", "parallel.pipeline=2"}, false},
  };
  // With sequences in pieces, every context layout has the bits of one rank.
  const Row in_pieces[] = {
      {1, {}, true},
      {2, {"parallel.context=2"}, true},
      {4, {"parallel.context=4"}, true},
      {2, {"parallel.context=2", "parallel.context_form=heads"}, true},
      {4, {"parallel.context=2", "parallel.pipeline=2", "memory.recompute=full"}, true},
      {4, {"parallel.context=2", "parallel.zero=3"}, true},
      {4, {"parallel.context=2", "parallel.tensor=2"}, false},
  };
  for (const char* family : {"gpt2", "llama"}) {
    const auto losses_on = [&](int world, std::vector<std::string> words) {
      for (const std::string& more : {std::string("model.family=") + family, std::string("model.heads=4"),
                                      std::string("model.hidden=32"), std::string("data.seq_len=48"),
                                      std::string("data.pack=true"), std::string("run.steps=3")})
        words.push_back(more);
      std::vector<double> losses;
      on_ranks(world, "shm", [&](comm::World& one) {
        Ranks ranks(one);
        Own own;
        own.dataset = std::make_shared<Packed>();
        Session session(make_plan(tiny_recipe(words), own, for_this(ranks)), &ranks);
        struct Losses : Observer {
          std::vector<double> all;
          void stepped(const StepReport& report) override { all.push_back(report.loss); }
        } seen;
        train(session, {}, seen);
        if (one.rank() == 0) losses = seen.all;
      });
      return losses;
    };
    const std::vector<double> alone = losses_on(1, {});
    const auto expect = [&](const Row& row, const std::vector<double>& many,
                            const std::vector<double>& same) {
      ASSERT_EQ(many.size(), alone.size());
      for (size_t k = 0; k < alone.size(); ++k) {
        EXPECT_NEAR(many[k], alone[k], 2e-5 * alone[k]);
        if (row.exact) {
          EXPECT_EQ(many[k], same[k]);
        }
      }
    };
    for (const Row& row : rows) {
      SCOPED_TRACE(testing::Message() << family << " " << testing::PrintToString(row.words));
      expect(row, losses_on(row.world, row.words), alone);
    }
    std::vector<double> first;
    for (const Row& row : in_pieces) {
      SCOPED_TRACE(testing::Message() << family << " in pieces " << testing::PrintToString(row.words));
      std::vector<std::string> words = row.words;
      for (const char* more : {"batch.sequence_strands=4", "batch.strands=4"}) words.emplace_back(more);
      const std::vector<double> many = losses_on(row.world, words);
      if (first.empty()) first = many;
      expect(row, many, first);
    }
  }
}

TEST(PackingRefusals, SayWhatDoesNotWork) {
  const auto refused = [](std::vector<std::string> overrides) {
    overrides.push_back("data.pack=true");
    return base::refusal(271, [&] { make_plan(tiny_recipe(overrides), {}); });
  };
  EXPECT_NE(refused({}).find("no documents to pack"), std::string::npos);
  EXPECT_NE(refused({"data.seq_len=16"}).find("set data.pack=false"), std::string::npos);
  Own own;
  own.dataset = std::make_shared<Packed>();
  const auto on_a_gpu = [&](const char* layout) {
    return base::refusal(271, [&] {
      make_plan(tiny_recipe({"data.pack=true", "data.seq_len=16", layout}), own,
                {.seat = {.rank = 0, .world = 2}, .device = device::Absent{.kind = device::Kind::cuda}});
    });
  };
  EXPECT_NE(on_a_gpu("parallel.context=2").find("parallel.context_form=heads"), std::string::npos);
  EXPECT_NE(on_a_gpu("batch.sequence_strands=2").find("batch.sequence_strands=1"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::run
