// Conversations as a dataset: samples, splits, what is skipped, truncated and packed.
#include "lockstep/data/documents/chat.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "lockstep/base/refusal.h"
#include "lockstep/data/formats/records.h"
#include "lockstep/data/kind.h"
#include "lockstep/data/loader.h"
#include "lockstep/data/shown.h"
#include "lockstep/data/test_folder.h"
#include "lockstep/kernels/loss/loss.h"
#include "lockstep/text/bpe_trainer.h"

namespace lockstep::data {
namespace {

using kernels::kIgnoredLabel;

const std::string kChatml =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

// A tokenizer of bytes, a few words and special tokens, with a template beside it.
std::string make_model(const TestFolder& folder, const std::string& chat_template = kChatml) {
  text::BpeTrainer trainer(
      {.vocab_size = 300, .special_tokens = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"}});
  trainer.add("user assistant user assistant hello hello ");
  text::save_tokenizer(trainer.train(), folder / "model");
  if (!chat_template.empty()) folder.write("model/chat_template.jinja", chat_template);
  folder.write(
      "model/tokenizer_config.json",
      R"({"eos_token": "<|im_end|>", "pad_token": {"content": "<|endoftext|>"}, "bos_token": null})");
  return folder / "model";
}

std::string line(const std::string& question, const std::string& answer) {
  return R"({"messages": [{"role": "user", "content": ")" + question +
         R"("}, {"role": "assistant", "content": ")" + answer + "\"}]}\n";
}

recipe::Recipe recipe_of(const std::string& path, const std::string& model, int64_t seq_len = 64) {
  recipe::Recipe recipe;
  recipe.data.path = path;
  recipe.data.tokenizer = model;
  recipe.data.seq_len = seq_len;
  recipe.data.eval_fraction = 0;
  return recipe;
}

// The sample with brackets around what is trained on; documents with a bar between them.
std::string shown(const Dataset& dataset, int64_t index, int64_t seq_len) {
  std::string text;
  int64_t document = 0;
  for (const ShownPart& part : show_sample(dataset, index, seq_len).parts) {
    if (part.document != document) text += "|";
    document = part.document;
    text += part.trained ? "[" + part.text + "]" : part.text;
  }
  return text;
}

TEST(Chat, IsTrainedOnWhereTheAssistantSpeaks) {
  const TestFolder folder;
  const std::string model = make_model(folder);
  const recipe::Recipe recipe =
      recipe_of(folder.write("a.jsonl", line("hi", "yo") + "\n" + line("b", "c")), model);
  const auto dataset = open_dataset(recipe);
  EXPECT_EQ(dataset->samples(Split::train), 2);
  EXPECT_FALSE(dataset->has_documents());
  EXPECT_EQ(shown(*dataset, 0, 64), "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n[yo<|im_end|>]");
  std::vector<int32_t> inputs(64), labels(64);
  dataset->read(Split::train, 1, inputs, labels);
  const auto tokenizer = text::open_tokenizer(model);
  const int32_t end = *tokenizer->id_of("<|im_end|>");
  const int32_t letter = *tokenizer->id_of("c");
  EXPECT_EQ(std::count(labels.begin(), labels.end(), kIgnoredLabel), 62);
  const auto first = std::find(labels.begin(), labels.end(), letter);
  ASSERT_NE(first, labels.end());
  EXPECT_EQ(first[1], end);
  // Every label is the next input, and padding is never a label.
  for (size_t t = 0; t + 1 < 64; ++t)
    EXPECT_TRUE(labels[t] == kIgnoredLabel || labels[t] == inputs[t + 1]) << t;
  EXPECT_EQ(inputs[63], *tokenizer->pad_token());
}

// The first token has no label, and is half of a character here.
TEST(Chat, CharactersAreShownWhole) {
  const TestFolder folder;
  const std::string model = make_model(folder, "{% for m in messages %}{{ m.content }}{% endfor %}");
  recipe::Recipe recipe = recipe_of(folder.write("a.jsonl", line("é日", "yo")), model);
  recipe.data.train_on = "all";
  EXPECT_EQ(shown(*open_dataset(recipe), 0, 64), "[é日yo]");
}

TEST(Chat, IsKnownByItsFields) {
  const TestFolder folder;
  struct Row {
    const char *name, *text, *kind;
  };
  for (const Row& row : std::initializer_list<Row>{
           {"a.jsonl", R"({"id": 1, "messages": []})", "chat"},
           {"b.json", "[\n {\"instruction\": \"a\", \"output\": \"b\"}\n]", "chat"},
           {"c.ndjson", R"({"prompt": "a", "completion": "b"})", "chat"},
           {"d.jsonl", R"({"conversations": []})", "chat"},
           {"e.jsonl", R"({"text": "a", "messages": []})", "jsonl"},
           {"f.jsonl", R"({"prompt": "a", "answer": "b"})", "jsonl"},
           {"g.jsonl", R"({"meta": {"messages": []}, "text": "a"})", "jsonl"},
           {"h.json", "{\n \"messages\": [\n ]\n}", "chat"},
       }) {
    EXPECT_EQ(infer_kind(folder.write(row.name, row.text)), row.kind) << row.name;
  }
  // Who says which field is the text means documents.
  const std::string both = folder.write("i.jsonl", R"({"prompt": "a", "completion": "b", "source": "c"})");
  EXPECT_EQ(infer_kind(both, true, "completion"), "jsonl");
  EXPECT_EQ(infer_kind(both, true, "absent"), "chat");
}

TEST(Chat, ReadsListsOfObjects) {
  const TestFolder folder;
  const std::string one = line("hi \\\" ] }", "yo"), two = line("b", "c");
  const std::string list = folder.write("a.json", "\xef\xbb\xbf [\n" + one + ",\n" + two + "]\n");
  const RecordFile records(list);
  ASSERT_EQ(records.records().size(), 2u);
  EXPECT_NE(records.where(records.records()[1]).find("a.json line 4"), std::string::npos);
  const auto dataset = open_dataset(recipe_of(list, make_model(folder)));
  EXPECT_EQ(dataset->samples(Split::train), 2);
  for (const char* broken : {"[", "[{}", "[{},", "[{},]", "[{} {}]", "[\"a", "[{\"a\": \"]}"}) {
    EXPECT_EQ(base::number_of_refusal([&] { RecordFile(folder.write("b.json", broken)); }), 272) << broken;
  }
  EXPECT_EQ(RecordFile(folder.write("c.json", "[]")).records().size(), 0u);
  EXPECT_EQ(RecordFile(folder.write("d.json", "{\n\"a\": [1,\n2]}")).records().size(), 1u);
}

TEST(Chat, NamesWhatCannotBeUsedOrSkipsIt) {
  struct Row {
    int number;
    std::string text, says;
  };
  for (const Row& row : std::initializer_list<Row>{
           {210, "{\"messages\": [}\n", "is not JSON"},
           {210, "{\"messages\": 1e999}\n", "is not JSON"},
           {260, "{\"title\": \"x\"}\n", "\"title\""},
           {261, "{\"messages\": [{\"role\": \"user\"}]}\n", "message 1 without content"},
           {263, "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}\n",
            "no message of the assistant"},
           {269, line(std::string(90, 'q'), "yo"), "beyond data.seq_len = 64"},
       }) {
    const TestFolder folder;
    const std::string path = folder.write("a.jsonl", line("hi", "yo") + row.text + line("b", "c"));
    recipe::Recipe recipe = recipe_of(path, make_model(folder));
    const std::string sentence = base::refusal(row.number, [&] { open_dataset(recipe); });
    EXPECT_NE(sentence.find("a.jsonl line 2"), std::string::npos) << sentence;
    EXPECT_NE(sentence.find(row.says), std::string::npos) << sentence;
    recipe.data.on_error = "skip";
    const auto dataset = open_dataset(recipe);
    EXPECT_EQ(dataset->samples(Split::train), 2);
    ASSERT_EQ(dataset->remarks().size(), 1u);
    EXPECT_NE(dataset->remarks()[0].find("a.jsonl line 2"), std::string::npos);
    EXPECT_NE(dataset->describe().find("1 skipped"), std::string::npos) << dataset->describe();
  }
}

TEST(Chat, NeedsATokenizerAndATemplate) {
  const TestFolder folder;
  const std::string path = folder.write("a.jsonl", line("hi", "yo"));
  EXPECT_NE(base::refusal(270, [&] { open_dataset(recipe_of(path, "bytes")); }).find("data.tokenizer"),
            std::string::npos);
  const std::string bare = make_model(folder, "");
  const std::string sentence = base::refusal(267, [&] { open_dataset(recipe_of(path, bare)); });
  EXPECT_NE(sentence.find(bare), std::string::npos);
  EXPECT_NE(sentence.find("data.chat_template"), std::string::npos);
  recipe::Recipe recipe = recipe_of(path, bare);
  recipe.data.chat_template = folder / "absent.jinja";
  EXPECT_EQ(base::number_of_refusal([&] { open_dataset(recipe); }), 267);
  recipe.data.chat_template = folder.write("bad.jinja", "{% for m in messages %}");
  EXPECT_EQ(base::number_of_refusal([&] { open_dataset(recipe); }), 268);
  recipe.data.chat_template = folder.write("good.jinja", kChatml);
  EXPECT_EQ(open_dataset(recipe)->samples(Split::train), 1);
  // Named templates in tokenizer_config.json.
  folder.write(
      "model/tokenizer_config.json",
      R"({"eos_token": "<|im_end|>", "chat_template": [{"name": "tool_use", "template": "no"},)"
      R"( {"name": "default", "template": "{% for m in messages %}{{ m.role }}:{{ m.content }}{{ eos_token }})"
      R"({% endfor %}{% if add_generation_prompt %}assistant:{% endif %}"}]})");
  EXPECT_EQ(shown(*open_dataset(recipe_of(path, bare)), 0, 64), "user:hi<|im_end|>assistant:[yo<|im_end|>]");
  // The model's folder tells, where no tokenizer is named.
  recipe::Resolved resolved{.recipe = recipe_of(path, "bytes"), .origin = {}};
  resolved.recipe.model.from = bare;
  resolve_kind(resolved);
  EXPECT_EQ(resolved.recipe.data.kind, "chat");
  EXPECT_EQ(resolved.recipe.data.tokenizer, bare);
}

TEST(Chat, IsTruncatedAndHeldOut) {
  const TestFolder folder;
  std::string text;
  for (int i = 0; i < 20; ++i) text += line("q", std::string(static_cast<size_t>(10 + i), 'a' + i));
  recipe::Recipe recipe = recipe_of(folder.write("a.jsonl", text), make_model(folder), 32);
  recipe.data.eval_fraction = 0.25;
  const auto dataset = open_dataset(recipe);
  EXPECT_EQ(dataset->samples(Split::train), 15);
  EXPECT_EQ(dataset->samples(Split::eval), 5);
  EXPECT_NE(dataset->describe().find("truncated to data.seq_len = 32"), std::string::npos)
      << dataset->describe();
  EXPECT_NE(dataset->content_hash(),
            open_dataset(recipe_of(folder / "a.jsonl", folder / "model", 64))->content_hash());
  recipe.data.eval_path = folder.write("b.jsonl", line("b", "c"));
  EXPECT_EQ(open_dataset(recipe)->samples(Split::train), 20);
  EXPECT_EQ(open_dataset(recipe)->samples(Split::eval), 1);
}

// Whole documents, each once; attention and positions are told where each begins.
TEST(Chat, IsPacked) {
  const TestFolder folder;
  std::string text;
  for (int i = 0; i < 50; ++i)
    text += line("q" + std::to_string(i), std::string(static_cast<size_t>(1 + i % 17), 'a'));
  recipe::Recipe recipe = recipe_of(folder.write("a.jsonl", text), make_model(folder), 64);
  const auto alone = open_dataset(recipe);
  recipe.data.pack = true;
  const auto packed = open_dataset(recipe);
  ASSERT_TRUE(packed->has_documents());
  EXPECT_LT(packed->samples(Split::train), 40);
  std::vector<std::string> one_by_one, together;
  for (int64_t i = 0; i < alone->samples(Split::train); ++i) one_by_one.push_back(shown(*alone, i, 64));
  for (int64_t i = 0; i < packed->samples(Split::train); ++i) {
    std::string rest = shown(*packed, i, 64);
    for (size_t bar; (bar = rest.find('|', rest.find("]"))) != std::string::npos && rest[bar - 1] != '<';
         rest = rest.substr(bar + 1))
      together.push_back(rest.substr(0, bar));
    together.push_back(rest);
    std::vector<int32_t> begins(64);
    packed->read_documents(Split::train, i, begins);
    for (size_t t = 0; t < 64; ++t) {
      EXPECT_LE(begins[t], static_cast<int32_t>(t));
      EXPECT_TRUE(begins[t] == static_cast<int32_t>(t) || begins[t] == begins[t - 1]);
    }
  }
  std::sort(one_by_one.begin(), one_by_one.end());
  std::sort(together.begin(), together.end());
  EXPECT_EQ(one_by_one, together);
  // The loader carries it.
  const Batch batch = read_batch(*packed, {.global = 4, .slices = 2, .seq_len = 64}, 0);
  EXPECT_EQ(batch.documents.size(), batch.inputs.size());
  EXPECT_TRUE(read_batch(*alone, {.global = 4, .slices = 2, .seq_len = 64}, 0).documents.empty());
  recipe.run.seed = 2;
  EXPECT_NE(shown(*open_dataset(recipe), 0, 64), shown(*packed, 0, 64));
}

TEST(Chat, DocumentsOfTextArePackedToo) {
  const TestFolder folder;
  const std::string model = make_model(folder);
  const std::string path = folder.write(
      "a.jsonl", "{\"text\": \"hello\"}\n{\"text\": \"" + std::string(30, 'x') + "\"}\n{\"text\": \"yo\"}\n");
  recipe::Recipe recipe = recipe_of(path, model, 16);
  recipe.data.pack = true;
  const auto dataset = open_dataset(recipe);
  ASSERT_TRUE(dataset->has_documents());
  EXPECT_NE(dataset->describe().find("1 split"), std::string::npos) << dataset->describe();
  // Every token but each document's first is predicted once.
  int64_t labels_seen = 0;
  std::vector<int32_t> inputs(16), labels(16);
  for (int64_t i = 0; i < dataset->samples(Split::train); ++i) {
    dataset->read(Split::train, i, inputs, labels);
    labels_seen += 16 - std::count(labels.begin(), labels.end(), kIgnoredLabel);
  }
  const auto tokenizer = text::open_tokenizer(model);
  std::vector<int32_t> hello;
  tokenizer->encoder()->encode("hello", hello);
  EXPECT_EQ(labels_seen, static_cast<int64_t>(hello.size()) + 30 + 2);
  recipe.data.tokenizer = "bytes";
  EXPECT_EQ(base::number_of_refusal([&] { open_dataset(recipe); }), 271);
}

}  // namespace
}  // namespace lockstep::data
