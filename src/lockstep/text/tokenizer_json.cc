// tokenizer.json, the file of Hugging Face's `tokenizers`.
#include <algorithm>
#include <cmath>
#include <filesystem>

#include "lockstep/base/file.h"
#include "lockstep/base/hash.h"
#include "lockstep/text/bpe_model.h"
#include "lockstep/text/json_part.h"
#include "lockstep/text/kinds.h"
#include "lockstep/text/pipeline.h"
#include "lockstep/text/unigram.h"
#include "lockstep/text/word_models.h"

namespace lockstep::text {
namespace {

int32_t id_of(const Json& value, const std::string& token) {
  if (!value.is_number_integer() || value.get<int64_t>() < 0 || value.get<int64_t>() >= kMostTokens) {
    refuse(fmt::format("token {} has the id {}, and an integer from 0 to {} is expected", base::quoted(token),
                       base::quoted(value.dump(), 40), kMostTokens - 1));
  }
  return value.get<int32_t>();
}

Vocabulary vocabulary_of(const Json& model) {
  const Json& tokens = member(model, "vocab");
  if (!tokens.is_object()) refuse("its \"vocab\" is no object of tokens and ids");
  Vocabulary vocabulary;
  for (const auto& [token, id] : tokens.items()) {
    const int32_t number = id_of(id, token);
    if (const std::string* other = vocabulary.token(number)) {
      refuse(fmt::format("the tokens {} and {} have the same id {}", base::quoted(*other),
                         base::quoted(token), number));
    }
    vocabulary.add(token, number);
  }
  return vocabulary;
}

struct Merge {
  std::string left, right;
};
Merge merge_of(const Json& value, size_t index) {
  if (value.is_array() && value.size() == 2 && value[0].is_string() && value[1].is_string())
    return {value[0].get<std::string>(), value[1].get<std::string>()};
  if (value.is_string()) {
    const auto text = value.get<std::string>();
    const size_t space = text.find(' ');
    if (space != std::string::npos && text.find(' ', space + 1) == std::string::npos)
      return {text.substr(0, space), text.substr(space + 1)};
  }
  refuse(fmt::format("merge {} is {}, and two tokens are expected", index, base::quoted(value.dump(), 60)));
}

PairTable pairs_of(const Json& model, const Vocabulary& vocabulary, size_t prefix_size) {
  const Json& merges = member(model, "merges");
  if (!merges.is_array()) refuse("its \"merges\" are no list");
  PairTable pairs(merges.size());
  for (size_t i = 0; i < merges.size(); ++i) {
    const Merge merge = merge_of(merges[i], i);
    const std::string joined = merge.left + merge.right.substr(std::min(prefix_size, merge.right.size()));
    const int32_t left = vocabulary.id(merge.left), right = vocabulary.id(merge.right),
                  id = vocabulary.id(joined);
    if (left < 0 || right < 0 || id < 0) {
      refuse(fmt::format("merge {} joins {} and {}, but {} is not in its vocabulary", i,
                         base::quoted(merge.left), base::quoted(merge.right),
                         base::quoted(left < 0    ? merge.left
                                      : right < 0 ? merge.right
                                                  : joined)));
    }
    pairs.replace(left, right, static_cast<uint32_t>(i), id);
  }
  return pairs;
}

std::string optional_text(const Json& part, const char* key) {
  return is_set(part, key) ? text_of(part, key) : "";
}

std::optional<int32_t> unknown_of(const Json& model, const Vocabulary& vocabulary) {
  if (!is_set(model, "unk_token")) return std::nullopt;
  const std::string token = text_of(model, "unk_token");
  const std::optional<int32_t> id = vocabulary.find(token);
  if (!id) refuse(fmt::format("its unk_token {} is not in its vocabulary", base::quoted(token)));
  return id;
}

std::unique_ptr<Model> make_bpe(const Json& model) {
  if (is_set(model, "dropout") && model["dropout"] != 0.0)
    refuse_kind("value of \"dropout\",", model["dropout"].dump(),
                "null: merges are left out at random otherwise");
  Vocabulary vocabulary = vocabulary_of(model);
  BpeOptions options{.unknown = unknown_of(model, vocabulary),
                     .fuse_unknown = flag_of(model, "fuse_unk", false),
                     .byte_fallback = flag_of(model, "byte_fallback", false),
                     .whole_first = flag_of(model, "ignore_merges", false),
                     .continuing_prefix = optional_text(model, "continuing_subword_prefix"),
                     .end_suffix = optional_text(model, "end_of_word_suffix")};
  PairTable pairs = pairs_of(model, vocabulary, options.continuing_prefix.size());
  return std::make_unique<BpeModel>(std::move(vocabulary), std::move(pairs), std::move(options));
}

std::unique_ptr<Model> make_word_piece(const Json& model) {
  Vocabulary vocabulary = vocabulary_of(model);
  const std::string unknown = is_set(model, "unk_token") ? text_of(model, "unk_token") : "[UNK]";
  const auto id = vocabulary.find(unknown);
  if (!id) refuse(fmt::format("its unk_token {} is not in its vocabulary", base::quoted(unknown)));
  const std::string prefix =
      is_set(model, "continuing_subword_prefix") ? text_of(model, "continuing_subword_prefix") : "##";
  int64_t most = 100;
  if (is_set(model, "max_input_chars_per_word")) {
    if (!model["max_input_chars_per_word"].is_number_integer())
      refuse("its max_input_chars_per_word is no integer");
    most = model["max_input_chars_per_word"].get<int64_t>();
  }
  return std::make_unique<WordPieceModel>(std::move(vocabulary), *id, prefix, most);
}

std::unique_ptr<Model> make_word_level(const Json& model) {
  Vocabulary vocabulary = vocabulary_of(model);
  const std::optional<int32_t> unknown =
      is_set(model, "unk_token") ? vocabulary.find(text_of(model, "unk_token")) : std::nullopt;
  return std::make_unique<WordLevelModel>(std::move(vocabulary), unknown);
}

std::unique_ptr<Model> make_unigram(const Json& model) {
  const Json& tokens = member(model, "vocab");
  if (!tokens.is_array() || tokens.empty()) refuse("its \"vocab\" is no list of tokens and scores");
  Vocabulary vocabulary;
  UnigramOptions options;
  options.least_score = std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < tokens.size(); ++i) {
    const Json& one = tokens[i];
    if (!one.is_array() || one.size() != 2 || !one[0].is_string() || !one[1].is_number())
      refuse(fmt::format("token {} is {}, and a text and a score are expected", i,
                         base::quoted(one.dump(), 60)));
    vocabulary.add(one[0].get<std::string>(), static_cast<int32_t>(i));
    options.scores.push_back(one[1].get<double>());
    options.least_score = std::min(options.least_score, options.scores.back());
  }
  if (is_set(model, "unk_id")) {
    options.unknown = id_of(model["unk_id"], "unk_id");
    if (*options.unknown >= vocabulary.size()) refuse("its unk_id is beyond its vocabulary");
  }
  options.byte_fallback = flag_of(model, "byte_fallback", false);
  return std::make_unique<UnigramModel>(std::move(vocabulary), std::move(options));
}

using Made = std::unique_ptr<Model>;
const StepRow<Made> kModels[] = {{"BPE", make_bpe},
                                 {"Unigram", make_unigram},
                                 {"WordPiece", make_word_piece},
                                 {"WordLevel", make_word_level}};

// Old files do not say what their model is.
Made make_model(Json model) {
  if (!model.is_object()) refuse("its \"model\" is missing");
  if (!model.contains("type")) {
    model["type"] = model.contains("merges")                     ? "BPE"
                    : member(model, "vocab").is_array()          ? "Unigram"
                    : model.contains("max_input_chars_per_word") ? "WordPiece"
                                                                 : "WordLevel";
  }
  return make_step<Made>("model", model, kModels);
}

std::vector<AddedToken> added_tokens_of(const Json& file, const Vocabulary& vocabulary) {
  std::vector<AddedToken> out;
  if (!is_set(file, "added_tokens")) return out;
  for (const Json& one : file["added_tokens"]) {
    AddedToken token{.content = text_of(one, "content"),
                     .special = flag_of(one, "special", false),
                     .single_word = flag_of(one, "single_word", false),
                     .lstrip = flag_of(one, "lstrip", false),
                     .rstrip = flag_of(one, "rstrip", false)};
    token.normalized = flag_of(one, "normalized", !token.special);
    token.id = id_of(member(one, "id"), token.content);
    if (token.content.empty()) continue;
    const std::string* known = vocabulary.token(token.id);
    const int32_t other = vocabulary.id(token.content);
    if ((known != nullptr && *known != token.content) || (other >= 0 && other != token.id)) {
      refuse(
          fmt::format("the added token {} has the id {}, which its vocabulary gives to {}; {} has {} there",
                      base::quoted(token.content), token.id, known ? base::quoted(*known) : "none",
                      base::quoted(token.content), other >= 0 ? fmt::format("{}", other) : "none"));
    }
    for (const AddedToken& before : out) {
      if (before.id == token.id || before.content == token.content) {
        refuse(fmt::format("the added tokens {} ({}) and {} ({}) clash", base::quoted(before.content),
                           before.id, base::quoted(token.content), token.id));
      }
    }
    out.push_back(std::move(token));
  }
  return out;
}

// ["[CLS]", 101].
int32_t id_of_pair(const Json& part, const char* key) {
  const Json& value = member(part, key);
  if (!value.is_array() || value.size() != 2)
    refuse(fmt::format("its post-processor's \"{}\" is no token and id", key));
  return id_of(value[1], key);
}

void add_template(const Json& part, PipelineParts& parts) {
  bool seen = false;
  std::vector<int32_t> before;
  std::vector<int32_t> after;
  for (const Json& one : member(part, "single")) {
    if (one.contains("Sequence")) {
      if (seen || text_of(one["Sequence"], "id") != "A") refuse_kind("template", one.dump(), "one text A");
      seen = true;
      continue;
    }
    const std::string name = text_of(member(one, "SpecialToken"), "id");
    const Json& ids = member(member(member(part, "special_tokens"), name.c_str()), "ids");
    for (const Json& id : ids) (seen ? after : before).push_back(id_of(id, name));
  }
  if (!seen) refuse_kind("template", "without a text", "one text A");
  parts.before.insert(parts.before.begin(), before.begin(), before.end());
  parts.after.insert(parts.after.end(), after.begin(), after.end());
}

void add_post_processor(const Json& part, PipelineParts& parts) {
  const std::string type = type_of(part);
  if (type == "ByteLevel") return;  // only offsets
  if (type == "TemplateProcessing") return add_template(part, parts);
  if (type == "BertProcessing" || type == "RobertaProcessing") {
    parts.before.insert(parts.before.begin(), id_of_pair(part, "cls"));
    parts.after.push_back(id_of_pair(part, "sep"));
    return;
  }
  if (type != "Sequence")
    refuse_kind("post-processor", type,
                "TemplateProcessing, BertProcessing, RobertaProcessing, ByteLevel, Sequence");
  for (const Json& step : member(part, "processors")) add_post_processor(step, parts);
}

// What a neighbour of the file calls its tokens: {"bos_token": "<s>"} or {"bos_token": {"content": "<s>"}}.
void add_names(const std::filesystem::path& folder, PipelineParts& parts) {
  for (const char* name : {"tokenizer_config.json", "special_tokens_map.json"}) {
    const base::ReadResult read = base::try_read_file((folder / name).string());
    if (!read.problem.empty()) continue;
    const Json config = Json::parse(read.text, nullptr, false);
    if (!config.is_object()) continue;
    const auto take = [&](const char* key, std::string& into) {
      if (!into.empty() || !is_set(config, key)) return;
      const Json& value = config[key];
      if (value.is_string()) into = value.get<std::string>();
      if (value.is_object() && value.contains("content") && value["content"].is_string())
        into = value["content"].get<std::string>();
    };
    take("bos_token", parts.begin);
    take("eos_token", parts.end);
    take("pad_token", parts.pad);
  }
}

uint64_t hash_of_steps(const Json& file) {
  uint64_t hash = 0;
  for (const char* key : {"normalizer", "pre_tokenizer"})
    hash = base::hash_combine(hash, base::hash_text(is_set(file, key) ? file[key].dump() : ""));
  return hash;
}

std::unique_ptr<Tokenizer> open(const std::string& path, std::string_view bytes) {
  const Json file = Json::parse(bytes, nullptr, false);
  if (!file.is_object()) refuse("it is no JSON object: it is truncated or of another format");
  PipelineParts parts{.source = "tokenizer.json",
                      .model = make_model(file.contains("model") ? file["model"] : Json())};
  parts.added = added_tokens_of(file, parts.model->vocabulary());
  if (is_set(file, "normalizer")) parts.normalizer = make_normalizer(file["normalizer"]);
  if (is_set(file, "pre_tokenizer")) parts.pre_tokenizer = make_pre_tokenizer(file["pre_tokenizer"]);
  if (is_set(file, "post_processor")) add_post_processor(file["post_processor"], parts);
  if (is_set(file, "decoder")) parts.decoder = make_decode_step(file["decoder"]);
  add_names(std::filesystem::path(path).parent_path(), parts);
  parts.steps_hash = hash_of_steps(file);
  return make_pipeline(std::move(parts));
}

bool is(std::string_view begin) { return base::trimmed(begin).starts_with('{'); }

}  // namespace

const FileKind kTokenizerJson = {"tokenizer.json", "tokenizer.json", is, open};

}  // namespace lockstep::text
