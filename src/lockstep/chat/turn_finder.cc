#include "lockstep/chat/turn_finder.h"

#include <fmt/format.h>

#include <algorithm>

#include "lockstep/base/text.h"
#include "lockstep/chat/fault.h"

namespace lockstep::chat {
namespace {

constexpr std::string_view kThought = "</think>";

size_t common_begin(std::string_view a, std::string_view b) {
  return static_cast<size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
}
size_t common_end(std::string_view a, std::string_view b) {
  return static_cast<size_t>(std::mismatch(a.rbegin(), a.rend(), b.rbegin(), b.rend()).first - a.rbegin());
}

// Words that differ from these at their first and their last letter, so that texts differ from there to
// there.
std::string other_words(std::string_view words) {
  const std::string_view said = base::trimmed(words);
  for (const char letter : {'x', 'y', 'z'}) {
    if (said.empty() || (said.front() != letter && said.back() != letter && words.front() != letter &&
                         words.back() != letter))
      return std::string(3, letter);
  }
  return "www";  // four letters at four places
}

}  // namespace

std::optional<std::string> TurnFinder::text_of(const Names& names, size_t count, Prompt prompt) const {
  try {
    return spoken_.render(names, count, prompt).text;
  } catch (const jinja::Failure&) {
    return std::nullopt;  // a part of a conversation need not please a template
  }
}

Span TurnFinder::find(size_t turn, size_t floor) const {
  std::optional<Span> span = by_prefixes(turn);
  if (!span || span->begin < floor) span = by_other_words(turn, floor);
  if (span && span->begin >= floor && span->begin < span->end && span->end <= whole_.size()) return *span;
  throw Fault{
      264, fmt::format("has a message {} of which the chat template does not let it be told which tokens are "
                       "the assistant's; use a template with {{% generation %}} marks (data.chat_template)",
                       turn + 1)};
}

std::optional<Span> TurnFinder::by_prefixes(size_t turn) const {
  const auto before = text_of(names_, turn, Prompt::generation);
  if (!before || !whole_.starts_with(*before)) return std::nullopt;
  const auto up_to = text_of(names_, turn + 1, Prompt::none);
  if (!up_to || !whole_.starts_with(*up_to) || up_to->size() <= before->size()) return std::nullopt;
  return Span{before->size(), up_to->size()};
}

// A call of another function. Its words stay, so that the template has no reason to write them in another
// way.
bool TurnFinder::call_another(Json& message) {
  if (!message.contains("tool_calls") || !message["tool_calls"].is_array() || message["tool_calls"].empty())
    return false;
  Json& call = message["tool_calls"].front();
  Json* function = call.is_object() && call.contains("function") ? &call["function"] : &call;
  if (!function->is_object() || !function->contains("name") || !(*function)["name"].is_string()) return false;
  (*function)["name"] = other_words((*function)["name"].get_ref<const std::string&>());
  return true;
}

// Other words; thinking before them stays, because templates look for it.
bool TurnFinder::say_other_words(Json& message, size_t turn) {
  if (!message.contains("content")) return false;
  const std::string content = text_of_content(message["content"], turn);
  const size_t thought = content.rfind(kThought);
  size_t kept = thought == std::string::npos ? 0 : thought + kThought.size();
  if (base::trimmed(std::string_view(content).substr(kept)).empty()) kept = 0;
  const std::string words = content.substr(kept);
  if (base::trimmed(words).empty()) return false;
  const std::string other = content.substr(0, kept) + other_words(words);
  if (message["content"].is_array()) {
    message["content"] = Json::array({{{"type", "text"}, {"text", other}}});
  } else {
    message["content"] = other;
  }
  return true;
}

std::optional<Span> TurnFinder::by_other_words(size_t turn, size_t floor) const {
  Conversation calls = conversation_, says = conversation_;
  if (call_another(calls.messages[turn])) {
    if (const auto span = by_difference(turn, floor, spoken_.names_of(calls))) return span;
  }
  if (!say_other_words(says.messages[turn], turn)) return std::nullopt;
  return by_difference(turn, floor, spoken_.names_of(says));
}

std::optional<Span> TurnFinder::by_difference(size_t turn, size_t floor, const Names& other) const {
  const auto text = text_of(other, other.messages.size(), Prompt::none);
  if (!text || *text == whole_) return std::nullopt;
  const size_t begin = common_begin(whole_, *text);
  const size_t longest = std::min(whole_.size(), text->size()) - begin;  // the two ends must not overlap
  const size_t end = whole_.size() - std::min(common_end(whole_, *text), longest);
  const auto start = start_of(turn, floor, begin);
  const auto stop = end_of(turn, other, end);
  if (!start || !stop || *start < floor || *start > begin || *stop < end) return std::nullopt;
  return Span{*start, *stop};
}

// Behind the prompt that begins an answer, the last one before the turn's own words.
std::optional<size_t> TurnFinder::start_of(size_t turn, size_t floor, size_t words_begin) const {
  const auto before = text_of(names_, turn, Prompt::generation);
  if (before && whole_.starts_with(*before) && before->size() <= words_begin) return before->size();
  const auto plain = text_of(names_, turn, Prompt::none);
  if (!before || !plain || !before->starts_with(*plain)) return words_begin;
  const std::string_view prompt = std::string_view(*before).substr(plain->size());
  const size_t least = last_special_end(prompt);  // a prompt may go on with <think>, which not every turn has
  for (size_t size = prompt.size(); size > 0 && size >= least; --size) {
    if (size != prompt.size() && least == 0) break;
    const size_t at = std::string_view(whole_).substr(0, words_begin).rfind(prompt.substr(0, size));
    if (at != std::string::npos && at >= floor) return at + size;
  }
  return prompt.empty() ? std::optional(words_begin) : std::nullopt;
}

// What follows the words at the conversation's end, as far as it follows them here.
std::optional<size_t> TurnFinder::end_of(size_t turn, const Names& other, size_t words_end) const {
  const auto last = text_of(names_, turn + 1, Prompt::none),
             last_other = text_of(other, turn + 1, Prompt::none);
  if (!last || !last_other || *last == *last_other) return std::nullopt;
  const std::string_view tail = std::string_view(*last).substr(last->size() - common_end(*last, *last_other));
  const std::string_view follows = std::string_view(whole_).substr(words_end);
  if (follows.starts_with(tail)) return words_end + tail.size();
  const size_t end = last_special_end(tail.substr(0, common_begin(tail, follows)));
  return end > 0 ? std::optional(words_end + end) : std::nullopt;
}

size_t TurnFinder::last_special_end(std::string_view text) const {
  size_t end = 0;
  for (const text::SpecialToken& token : special_) {
    if (token.text.empty()) continue;
    const size_t at = text.rfind(token.text);
    if (at != std::string_view::npos) end = std::max(end, at + token.text.size());
  }
  return end;
}

}  // namespace lockstep::chat
