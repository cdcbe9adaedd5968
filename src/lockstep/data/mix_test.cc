#include "lockstep/data/mix.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "lockstep/base/refusal.h"
#include "lockstep/data/loader.h"
#include "lockstep/data/test_folder.h"

namespace lockstep::data {
namespace {

// Text of one letter: whoever reads a sample sees where it comes from.
struct Sources {
  TestFolder folder;
  recipe::Recipe recipe;
  Sources() {
    recipe.data.seq_len = 4;
    recipe.data.eval_fraction = 0.1;
    recipe.batch.global = 8;
    recipe.run.steps = 100;
    folder.write("a/a.txt", std::string(4 * 50 + 1, 'a'));
    folder.write("b/b.txt", std::string(4 * 200 + 1, 'b'));
    folder.write("c/c.jsonl", "{\"text\": \"" + std::string(400, 'c') + "\"}\n");
  }
  std::unique_ptr<Dataset> open(const std::string& mix) {
    recipe.data.mix = mix;
    return open_dataset(recipe);
  }
  std::string path(const std::string& name) const { return folder / name; }
};

char letter_at(const Dataset& data, Split split, int64_t index) {
  std::vector<int32_t> inputs(4), labels(4);
  data.read(split, index, inputs, labels);
  return static_cast<char>(inputs[0]);
}

TEST(Mix, GivesEachSourceItsShare) {
  Sources s;
  const auto data = s.open(fmt::format("{}=0.5, {}=0.3, {}=0.2", s.path("a"), s.path("b"), s.path("c")));
  EXPECT_EQ(data->samples(Split::train), 45 + 180 + 90);
  std::map<char, int64_t> seen;
  for (int64_t position = 0; position < 1000; ++position)
    ++seen[letter_at(*data, Split::train, data->sample_at(5, position))];
  EXPECT_EQ(seen, (std::map<char, int64_t>{{'a', 500}, {'b', 300}, {'c', 200}}));
  const std::vector<SourceCount> counts = data->sources(1000);
  ASSERT_EQ(counts.size(), 3u);
  EXPECT_EQ(counts[1].name, "b");
  EXPECT_EQ(counts[1].seen, 300);
  EXPECT_NEAR(counts[0].epochs(), 500.0 / 45, 1e-12);
}

// Within an epoch of its own, a source shows each of its samples once; another seed, another order.
TEST(Mix, EachSourceHasItsOwnEpochs) {
  Sources s;
  const auto data = s.open(fmt::format("{}=1, {}=3", s.path("a"), s.path("b")));
  std::map<int, std::vector<int64_t>> order;
  for (int64_t position = 0; position < 4 * 90; ++position) {
    const int64_t sample = data->sample_at(5, position);
    order[sample < 45 ? 0 : 1].push_back(sample);
  }
  ASSERT_EQ(order[0].size(), 90u);
  const std::set<int64_t> first(order[0].begin(), order[0].begin() + 45),
      second(order[0].begin() + 45, order[0].end());
  EXPECT_EQ(first.size(), 45u);
  EXPECT_EQ(second.size(), 45u);
  EXPECT_FALSE(std::equal(order[0].begin(), order[0].begin() + 45, order[0].begin() + 45));
  EXPECT_EQ(std::set<int64_t>(order[1].begin(), order[1].begin() + 180).size(), 180u);
  std::vector<int64_t> other;
  for (int64_t position = 0; position < 40; ++position) other.push_back(data->sample_at(6, position));
  EXPECT_NE(other[0] + other[1] + other[2] + other[3] + other[4] + other[5],
            data->sample_at(5, 0) + data->sample_at(5, 1) + data->sample_at(5, 2) + data->sample_at(5, 3) +
                data->sample_at(5, 4) + data->sample_at(5, 5));
}

TEST(Mix, SlicesOfRanksAreTheWholeBatch) {
  Sources s;
  const auto data = s.open(fmt::format("{}=0.7, {}=0.3", s.path("a"), s.path("b")));
  LoaderOptions options{.seed = 3, .global = 8, .slices = 4, .seq_len = 4};
  for (const int64_t step : {0, 1, 77}) {
    const Batch whole = read_batch(*data, options, step);
    std::vector<int32_t> together;
    for (int64_t slice = 0; slice < 4; ++slice) {
      options.own_slices = {slice};
      const Batch part = read_batch(*data, options, step);
      together.insert(together.end(), part.inputs.begin(), part.inputs.end());
    }
    options.own_slices = {};
    EXPECT_EQ(together, whole.inputs) << step;
  }
}

TEST(Mix, EvaluatesOnEverySourceInProportion) {
  Sources s;
  const auto data = s.open(fmt::format("{}=0.9, {}=0.1", s.path("a"), s.path("b")));
  EXPECT_EQ(data->samples(Split::eval), 5 + 20);
  std::map<char, int64_t> seen;
  for (int64_t index = 0; index < 25; ++index) {
    ++seen[letter_at(*data, Split::eval, index)];
    if (index == 9) {
      EXPECT_EQ(seen['a'], 2);
    }
  }
  EXPECT_EQ(seen, (std::map<char, int64_t>{{'a', 5}, {'b', 20}}));
}

TEST(Mix, WithoutWeightsSizesCount) {
  Sources s;
  const std::string mix = fmt::format("{}, {}", s.path("a"), s.path("b"));
  EXPECT_NEAR(s.open(mix)->sources(1)[0].share, 0.2, 1e-6);
  s.recipe.data.mix_temperature = 2;
  EXPECT_NEAR(s.open(mix)->sources(1)[0].share, 1.0 / 3, 1e-5);
  s.recipe.data.mix_temperature = 1000;
  EXPECT_NEAR(s.open(mix)->sources(1)[0].share, 0.5, 1e-3);
}

TEST(Mix, RefusesWhatDoesNotGoTogether) {
  Sources s;
  s.folder.write("t/t.bin", std::string(2000, '\1'));
  const std::string both = fmt::format("path={} weight=1, path={} weight=1", s.path("a"), s.path("t"));
  EXPECT_NE(base::refusal(284, [&] { s.open(both); }).find("data.tokenizer"), std::string::npos);
  const std::string short_lived =
      fmt::format("path={0} weight=1 epochs=2, path={1} weight=1 epochs=1", s.path("a"), s.path("b"));
  EXPECT_NE(base::refusal(285, [&] { s.open(short_lived); }).find("270 samples"), std::string::npos);
  s.recipe.run.steps = 33;
  EXPECT_EQ(s.open(short_lived)->sources(264)[0].seen, 90);
  EXPECT_NE(base::refusal(202, [&] { s.open(s.path("absent") + "=1"); }).find("source \"absent\""),
            std::string::npos);
  s.recipe.data.kind = "text";
  EXPECT_NE(base::refusal(283, [&] { s.open(s.path("a") + "=1"); }).find("kind=text"), std::string::npos);
  s.recipe.data.kind = "auto";
  s.recipe.data.path = s.path("a");
  EXPECT_EQ(base::number_of_refusal([&] { s.open(s.path("a") + "=1"); }), 283);
  s.recipe.data.path = "";
  s.recipe.data.eval_path = s.path("a");
  EXPECT_EQ(base::number_of_refusal([&] { s.open(s.path("a") + "=1"); }), 283);
}

}  // namespace
}  // namespace lockstep::data
