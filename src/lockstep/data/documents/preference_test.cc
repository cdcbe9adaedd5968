// Preferences as a dataset: pairs of samples, their masks, order and references.
#include "lockstep/data/documents/preference.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <algorithm>
#include <map>

#include "lockstep/base/file.h"
#include "lockstep/base/refusal.h"
#include "lockstep/data/arrow/columns.h"
#include "lockstep/data/kind.h"
#include "lockstep/data/loader.h"
#include "lockstep/data/shown.h"
#include "lockstep/data/test_folder.h"
#include "lockstep/kernels/loss/loss.h"
#include "lockstep/text/bpe_trainer.h"

namespace lockstep::data {
namespace {

std::string make_model(const TestFolder& folder, bool with_template = true) {
  text::BpeTrainer trainer(
      {.vocab_size = 300, .special_tokens = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"}});
  trainer.add("user assistant user assistant hello hello ");
  text::save_tokenizer(trainer.train(), folder / "model");
  if (with_template)
    folder.write("model/chat_template.jinja",
                 "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
                 "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}");
  folder.write("model/tokenizer_config.json", R"({"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"})");
  return folder / "model";
}

std::string chats(const std::string& question, const std::string& good, const std::string& bad) {
  return R"({"prompt": [{"role": "user", "content": ")" + question +
         R"("}], "chosen": [{"role": "assistant", "content": ")" + good +
         R"("}], "rejected": [{"role": "assistant", "content": ")" + bad + "\"}]}\n";
}

std::string texts(const std::string& prompt, const std::string& good, const std::string& bad) {
  return R"({"prompt": ")" + prompt + R"(", "chosen": ")" + good + R"(", "rejected": ")" + bad + "\"}\n";
}

recipe::Recipe recipe_of(const std::string& path, const std::string& model) {
  recipe::Recipe recipe;
  recipe.data.path = path;
  recipe.data.tokenizer = model;
  recipe.data.seq_len = 64;
  recipe.data.eval_fraction = 0;
  return recipe;
}

// With brackets around what is trained on.
std::string shown(const Dataset& dataset, int64_t index) {
  std::string text;
  for (const ShownPart& part : show_sample(dataset, index, 64).parts)
    text += part.trained ? "[" + part.text + "]" : part.text;
  return text;
}

TEST(Preferences, AreTwoSamplesEachWithTheSamePrompt) {
  const TestFolder folder;
  const std::string path = folder.write("a.jsonl", chats("hi", "yo", "go away") + texts("1+1=", "2", "3"));
  EXPECT_EQ(infer_kind(path), "preference");
  const auto dataset = open_dataset(recipe_of(path, make_model(folder)));
  EXPECT_TRUE(dataset->has_pairs());
  ASSERT_EQ(dataset->samples(Split::train), 4);
  const std::string before = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n";
  EXPECT_EQ(shown(*dataset, 0), before + "[yo<|im_end|>]");
  EXPECT_EQ(shown(*dataset, 1), before + "[go away<|im_end|>]");
  EXPECT_EQ(shown(*dataset, 2), "1+1=[2<|im_end|>]");
  EXPECT_EQ(shown(*dataset, 3), "1+1=[3<|im_end|>]");
  EXPECT_NE(dataset->describe().find("2 pairs"), std::string::npos) << dataset->describe();
}

// Ids are those of the whole text: an answer begins where its tokens, or those of the other, leave the
// prompt's.
TEST(Preferences, OfTextsAreTokenizedWithTheirPrompt) {
  const TestFolder folder;
  const auto dataset =
      open_dataset(recipe_of(folder.write("a.jsonl", texts("user hel", "lo", "p")), make_model(folder)));
  std::vector<int32_t> inputs(64), labels(64);
  EXPECT_EQ(shown(*dataset, 0), "user[ hello<|im_end|>]");
  EXPECT_EQ(shown(*dataset, 1), "user[ help<|im_end|>]");
  dataset->read(Split::train, 0, inputs, labels);
  const std::vector<int32_t> whole = dataset->encode("user hello");
  EXPECT_EQ(std::vector<int32_t>(inputs.begin(), inputs.begin() + static_cast<std::ptrdiff_t>(whole.size())),
            whole);
}

TEST(Preferences, OfTextsNeedNoTemplate) {
  const TestFolder folder;
  const std::string model = make_model(folder, false);
  EXPECT_EQ(
      open_dataset(recipe_of(folder.write("a.jsonl", texts("a", "b", "c")), model))->samples(Split::train),
      2);
  const recipe::Recipe chat = recipe_of(folder.write("b.jsonl", chats("a", "b", "c")), model);
  EXPECT_EQ(base::number_of_refusal([&] { open_dataset(chat); }), 267);
}

TEST(Preferences, NameWhatCannotBeUsedOrSkipIt) {
  struct Row {
    int number;
    std::string text;
  };
  for (const Row& row : std::initializer_list<Row>{
           {390, "{\"prompt\": \"a\", \"chosen\": \"b\"}\n"},
           {391, texts("a", "", "b")},
           {392, texts("a", "b", "b")},
           {392, texts("a", std::string(80, 'q') + "b", std::string(80, 'q') + "c")},  // beyond data.seq_len
           {269, chats(std::string(90, 'q'), "a", "b")},
           {210, "{\"prompt\n"},
           {263,
            R"({"prompt": [{"role": "user", "content": "a"}], "chosen": [{"role": "user", "content": "b"}],)"
            R"( "rejected": [{"role": "assistant", "content": "c"}]})"
            "\n"},
       }) {
    const TestFolder folder;
    const std::string path =
        folder.write("a.jsonl", chats("hi", "yo", "no") + row.text + texts("a", "b", "c"));
    recipe::Recipe recipe = recipe_of(path, make_model(folder));
    EXPECT_EQ(base::number_of_refusal([&] { open_dataset(recipe); }), row.number) << row.text;
    recipe.data.on_error = "skip";
    const auto dataset = open_dataset(recipe);
    EXPECT_EQ(dataset->samples(Split::train), 4) << row.text;  // neither half of the bad one
    ASSERT_EQ(dataset->remarks().size(), 1u) << row.text;
    EXPECT_NE(dataset->remarks()[0].find("a.jsonl line 2"), std::string::npos) << dataset->remarks()[0];
  }
}

std::string many(int pairs) {
  std::string text;
  for (int i = 0; i < pairs; ++i)
    text += texts("q" + std::to_string(i), "a" + std::to_string(i), "b" + std::to_string(i));
  return text;
}

TEST(Preferences, StayTogetherInEveryOrder) {
  const TestFolder folder;
  recipe::Recipe recipe = recipe_of(folder.write("a.jsonl", many(7)), make_model(folder));
  const auto dataset = open_dataset(recipe);
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    std::map<int64_t, int> seen;
    for (int64_t i = 0; i < 14; ++i) ++seen[dataset->sample_at(5, epoch * 14 + i)];
    EXPECT_EQ(seen.size(), 14u);
    for (int64_t i = 0; i < 14; i += 2) {
      const int64_t first = dataset->sample_at(5, epoch * 14 + i);
      EXPECT_EQ(first % 2, 0);
      EXPECT_EQ(dataset->sample_at(5, epoch * 14 + i + 1), first + 1);
    }
  }
  EXPECT_NE(dataset->sample_at(5, 0) + dataset->sample_at(5, 2) * 100,
            dataset->sample_at(6, 0) + dataset->sample_at(6, 2) * 100);
  recipe.data.eval_fraction = 0.3;
  const auto parted = open_dataset(recipe);
  EXPECT_EQ(parted->samples(Split::train) % 2, 0);
  EXPECT_EQ(parted->samples(Split::eval), 4);
  EXPECT_EQ(parted->samples(Split::train), 10);
}

TEST(Preferences, BringTheirReferencesAndAreCountedAsPairs) {
  const TestFolder folder;
  const auto dataset = open_dataset(recipe_of(folder.write("a.jsonl", many(6)), make_model(folder)));
  References references;
  for (int64_t i = 0; i < 12; ++i) references.train.push_back(-static_cast<double>(i) - 0.5);
  const LoaderOptions options{
      .seed = 3, .global = 8, .slices = 2, .own_slices = {1}, .seq_len = 64, .references = &references};
  const Batch batch = read_batch(*dataset, options, 1);
  EXPECT_EQ(batch.valid_labels, 2);  // pairs of one slice
  ASSERT_EQ(batch.references.size(), 4u);
  for (int64_t j = 0; j < 4; ++j)
    EXPECT_EQ(batch.references[static_cast<size_t>(j)],
              references.train[static_cast<size_t>(dataset->sample_at(3, 8 + 4 + j))]);
  const Batch last = read_in_order(*dataset, {.split = Split::train, .batch = 2, .count = 5, .seq_len = 64});
  EXPECT_EQ(last.valid_labels, 1);  // samples 10 and 11; behind them there are none
  EXPECT_EQ(std::count(last.labels.begin() + 2 * 64, last.labels.end(), kernels::kIgnoredLabel), 3 * 64);
}

TEST(Preferences, MayBeCompressed) {
  const TestFolder folder;
  const std::string plain = folder.write("a.jsonl", many(5)), packed = folder / "b.jsonl.gz";
  gzFile file = gzopen(packed.c_str(), "wb");
  const std::string text = many(5);
  ASSERT_EQ(gzwrite(file, text.data(), static_cast<unsigned>(text.size())), static_cast<int>(text.size()));
  gzclose(file);
  EXPECT_EQ(infer_kind(packed), "preference");
  const std::string model = make_model(folder);
  EXPECT_EQ(open_dataset(recipe_of(packed, model))->content_hash(),
            open_dataset(recipe_of(plain, model))->content_hash());
}

TEST(Preferences, MayBeRowsOfColumns) {
  if (!has_arrow()) GTEST_SKIP() << "built without Arrow";
  const TestFolder folder;
  const std::string samples = LOCKSTEP_SOURCE "/tools/samples/corpora/preferences",
                    model = make_model(folder);
  const auto plain = open_dataset(recipe_of(samples + ".jsonl", model));
  ASSERT_EQ(plain->samples(Split::train), 10);
  for (const char* ending : {".parquet", ".arrow", ".arrows"}) {
    recipe::Recipe recipe = recipe_of(samples + ending, model);
    recipe.data.kind = "preference";
    EXPECT_EQ(open_dataset(recipe)->content_hash(), plain->content_hash()) << ending;
    recipe.data.kind = "chat";  // which these rows are not: the row is named
    recipe.data.on_error = "skip";
    EXPECT_EQ(base::number_of_refusal([&] { open_dataset(recipe); }), 205);
    recipe.data.on_error = "stop";
    EXPECT_EQ(base::number_of_refusal([&] { open_dataset(recipe); }), 260);
  }
  // Cut off anywhere, it is refused and nothing worse.
  const std::string whole = base::read_file(samples + ".parquet");
  for (size_t size = 4; size < whole.size(); size += 97) {
    recipe::Recipe recipe = recipe_of(folder.write("cut.parquet", whole.substr(0, size)), model);
    recipe.data.kind = "preference";
    EXPECT_EQ(base::number_of_refusal([&] { open_dataset(recipe); }), 276) << size;
  }
}

TEST(Preferences, AreNotMixed) {
  const TestFolder folder;
  recipe::Recipe recipe = recipe_of("", make_model(folder));
  recipe.data.mix = folder.write("a.jsonl", many(3)) + "=1," + folder.write("b.jsonl", many(2)) + "=1";
  EXPECT_EQ(base::number_of_refusal([&] { open_dataset(recipe); }), 284);
}

}  // namespace
}  // namespace lockstep::data
