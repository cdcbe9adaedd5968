#include "lockstep/cli/text/generated_texts.h"

#include <fmt/format.h>

#include <cstdio>
#include <utility>

#include "lockstep/cli/print.h"

namespace lockstep::cli {

GeneratedTexts::GeneratedTexts(Options options)
    : o_(std::move(options)),
      texts_(o_.prompts.size() * static_cast<size_t>(o_.samples)),
      complete_(texts_.size(), false) {
  if (!streams()) return;
  const Text& only = text_at(0);
  printed_ = o_.shows_prompts ? 0 : only.transcript.prompt_bytes();
  show_more(only, only.transcript.complete());
}

GeneratedTexts::Text& GeneratedTexts::text_at(size_t index) {
  std::optional<Text>& text = texts_[index];
  if (text) return *text;
  const size_t number = index / static_cast<size_t>(o_.samples);
  const ModelText::Prompt& prompt = o_.prompts[number];
  std::vector<int32_t> shown(prompt.tokens.begin() + static_cast<std::ptrdiff_t>(prompt.hidden),
                             prompt.tokens.end());
  const auto decode = [this](std::span<const int32_t> tokens) { return o_.text.decode(tokens); };
  const size_t count = shown.size();
  return text.emplace(Text{.transcript = {decode, std::move(shown), o_.stops},
                           .prompt = number,
                           .prompt_tokens = count,
                           .logprobs = {}});
}

void GeneratedTexts::show_more(const Text& text, size_t until) {
  if (until <= printed_) return;
  print("{}", std::string_view(text.transcript.text()).substr(printed_, until - printed_));
  std::fflush(stdout);
  printed_ = until;
}

bool GeneratedTexts::add(size_t index, const run::Drawn& drawn) {
  Text& text = text_at(index);
  const bool more = take(text, drawn);
  if (more && ++text.drawn < o_.tokens) return true;
  complete_[index] = true;
  print_complete();
  return more;
}

bool GeneratedTexts::take(Text& text, const run::Drawn& drawn) {
  if (o_.logprobs) text.logprobs.push_back(drawn.logprob);
  if (!o_.ignore_eos && o_.text.ends(drawn.token)) {
    text.stopped = true;
    text.end_token = drawn.token;
    return false;
  }
  text.stopped = !text.transcript.add(drawn.token);
  if (streams()) show_more(text, text.transcript.complete());
  return !text.stopped;
}

std::vector<int32_t> GeneratedTexts::tokens_of(const Text& text) const {
  const ModelText::Prompt& prompt = o_.prompts[text.prompt];
  std::vector<int32_t> tokens(prompt.tokens.begin(),
                              prompt.tokens.begin() + static_cast<std::ptrdiff_t>(prompt.hidden));
  const std::vector<int32_t>& shown = text.transcript.tokens();
  tokens.insert(tokens.end(), shown.begin(), shown.end());
  if (text.end_token >= 0) tokens.push_back(text.end_token);
  return tokens;
}

void GeneratedTexts::print_json(size_t index, const Text& text) {
  nlohmann::json out = o_.named;
  const WrittenPrompt& written = o_.written[text.prompt];
  const std::string& whole = text.transcript.text();
  if (written.messages.is_null()) {
    out["prompt"] = written.text;
  } else {
    out["messages"] = written.messages;
  }
  out["sample"] = static_cast<int64_t>(index) % o_.samples;
  out["text"] = whole;
  out["completion"] = whole.substr(std::min(whole.size(), text.transcript.prompt_bytes()));
  out["tokens"] = tokens_of(text);
  out["prompt_tokens"] = o_.prompts[text.prompt].tokens.size();
  out["finish_reason"] = text.stopped ? "stop" : "length";
  if (o_.logprobs) out["logprobs"] = text.logprobs;
  if (const auto accepted = o_.dataset.acceptance(tokens_of(text))) out["accepted"] = *accepted;
  print("{}\n", out.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

void GeneratedTexts::print_text(size_t index, const Text& text) {
  if (streams()) {
    show_more(text, text.transcript.text().size());
    print("\n");
    std::fflush(stdout);
    if (const auto accepted = o_.dataset.acceptance(tokens_of(text)))
      remark("the grammar accepts {:.0f} % of the complete sentences\n", *accepted * 100);
    return;
  }
  const std::string& whole = text.transcript.text();
  const size_t begin = o_.shows_prompts ? 0 : std::min(whole.size(), text.transcript.prompt_bytes());
  const std::string sample =
      o_.samples > 1 ? fmt::format(", sample {}", static_cast<int64_t>(index) % o_.samples + 1) : "";
  print("[{}{}] {}\n", text.prompt + 1, sample, std::string_view(whole).substr(begin));
}

// In the order of the prompts; what is printed is forgotten.
void GeneratedTexts::print_complete() {
  while (next_ < texts_.size() && complete_[next_]) print_one(next_++);
}

void GeneratedTexts::print_one(size_t index) {
  if (!texts_[index]) return;  // interrupted before it began
  o_.json ? print_json(index, *texts_[index]) : print_text(index, *texts_[index]);
  texts_[index].reset();
}

void GeneratedTexts::finish() {
  while (next_ < texts_.size()) print_one(next_++);
}

}  // namespace lockstep::cli
