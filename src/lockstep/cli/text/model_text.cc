#include "lockstep/cli/text/model_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/checkpoint/older.h"
#include "lockstep/cli/print.h"
#include "lockstep/run/session/load.h"
#include "lockstep/text/utf8.h"

namespace lockstep::cli {

namespace {

void check_utf8(const std::string& text, const std::string& where) {
  const size_t whole = text::whole_prefix(text);
  if (whole == text.size()) return;
  throw base::ConfigError(198, fmt::format("{} is not UTF-8 from byte {} on (0x{:02X}); convert it to UTF-8",
                                           where, whole, static_cast<unsigned char>(text[whole])));
}

// As small a batch as can be: nothing is trained, and no data is read either.
run::Plan decoding_plan(FolderModel& model) {
  recipe::Recipe& recipe = model.resolved.recipe;
  run::adopt_model(model.resolved);
  recipe.batch.global = 1;
  recipe.batch.slices = recipe.batch.strands = 1;
  recipe.data.pack = false;
  if (!model.trained_here && !model.said("data.kind")) recipe.data.kind = "tokens";
  adopt_tokenizer(model);
  constexpr int64_t kShort = 16;
  recipe.data.seq_len = std::min(recipe.data.seq_len, kShort);
  if (!recipe.model.context.is_auto)
    recipe.data.seq_len = std::min(recipe.data.seq_len, recipe.model.context.value);
  if (recipe.precision.compute == "fp8") recipe.precision.compute = "bf16";
  return run::make_plan(std::move(model.resolved), {}, {.reads_data = false});
}

}  // namespace

OpenedModel open_for_decoding(const std::string& folder, const std::vector<std::string>& words) {
  OpenedModel opened;
  checkpoint::read_newest(
      folder,
      [&](const std::string& newest) {
        opened.model = folder_model(newest, words);
        opened.session = std::make_unique<run::Session>(decoding_plan(opened.model));
      },
      remark_line);
  if (!opened.session->plan.model->predicts_tokens)
    throw base::ConfigError(163, "this model does not predict tokens");
  return opened;
}

ModelText::ModelText(const run::Plan& plan, const FolderModel& model)
    : plan_(plan),
      tokenizer_(data::tokenizer_of(plan.recipe().data)),
      first_token_(model.first_token),
      ends_(model.end_tokens) {
  if (tokenizer_ && tokenizer_->end_token() && !model.generation_config)
    ends_.push_back(*tokenizer_->end_token());
}

void ModelText::check_prompt(const std::vector<int32_t>& tokens, const std::string& where) const {
  const int64_t context = plan_.model->context;
  if (static_cast<int64_t>(tokens.size()) > context) {
    throw base::ConfigError(
        198, fmt::format("{} has {} tokens, more than the model's context of {}; shorten it", where,
                         tokens.size(), context));
  }
  check_tokens(tokens, where);
}

void ModelText::check_tokens(const std::vector<int32_t>& tokens, const std::string& where) const {
  const int64_t vocab = plan_.model->vocab;
  for (const int32_t token : tokens) {
    if (token >= 0 && token < vocab) continue;
    throw base::ConfigError(
        198, fmt::format(
                 "{} has the token {}, but the model's vocabulary ends at {}; use the tokenizer that belongs "
                 "to the model (data.tokenizer)",
                 where, token, vocab - 1));
  }
}

std::vector<int32_t> ModelText::encode(const std::string& text, bool add_special) const {
  if (!tokenizer_) return plan_.dataset->encode(text);
  std::vector<int32_t> tokens;
  tokenizer_->encoder()->encode(text, tokens, {.add_special = add_special});
  return tokens;
}

std::vector<int32_t> ModelText::beginning() const {
  std::vector<int32_t> before, behind;
  if (tokenizer_) tokenizer_->special_ids_around(before, behind);
  if (!before.empty()) return before;
  const bool known = first_token_ >= 0 && first_token_ < plan_.model->vocab;
  return known ? std::vector<int32_t>{static_cast<int32_t>(first_token_)} : plan_.dataset->start();
}

ModelText::Prompt ModelText::prompt(const std::string& text, const std::string& where) const {
  check_utf8(text, where);
  Prompt prompt;
  if (!text.empty()) prompt.tokens = encode(text);
  if (prompt.tokens.empty()) {  // nobody has begun it
    prompt.tokens = beginning();
    prompt.hidden = prompt.tokens.size();
  } else if (tokenizer_) {
    std::vector<int32_t> before, behind;
    tokenizer_->special_ids_around(before, behind);
    const bool added = prompt.tokens.size() >= before.size() &&
                       std::equal(before.begin(), before.end(), prompt.tokens.begin());
    if (added) prompt.hidden = before.size();
  }
  if (prompt.tokens.empty())
    throw base::ConfigError(
        198, fmt::format("{} is empty, and the model has no first token; write some text", where));
  check_prompt(prompt.tokens, where);
  return prompt;
}

ModelText::Prompt ModelText::rendered(const std::string& text, const std::string& where) const {
  check_utf8(text, where);
  Prompt prompt{.tokens = encode(text, false), .hidden = 0};
  if (prompt.tokens.empty()) throw base::ConfigError(198, fmt::format("{} is empty; write some text", where));
  check_prompt(prompt.tokens, where);
  return prompt;
}

std::string ModelText::decode(std::span<const int32_t> tokens) const { return plan_.dataset->decode(tokens); }

bool ModelText::ends(int32_t token) const {
  return std::find(ends_.begin(), ends_.end(), token) != ends_.end();
}

}  // namespace lockstep::cli
