// Where turns lie in a rendered conversation whose template does not mark them (trained.h says how).
#pragma once

#include <optional>
#include <string>

#include "lockstep/chat/trained.h"

namespace lockstep::chat {

class TurnFinder {
 public:
  TurnFinder(const ChatTemplate& spoken, const Conversation& conversation, const Names& names,
             const std::string& whole, const std::vector<text::SpecialToken>& special)
      : spoken_(spoken), conversation_(conversation), names_(names), whole_(whole), special_(special) {}
  // `floor`: the turn begins there at the earliest. Fault 264.
  Span find(size_t turn, size_t floor) const;

 private:
  std::optional<std::string> text_of(const Names& names, size_t count, Prompt prompt) const;
  std::optional<Span> by_prefixes(size_t turn) const;
  std::optional<Span> by_other_words(size_t turn, size_t floor) const;
  std::optional<size_t> start_of(size_t turn, size_t floor, size_t words_begin) const;
  std::optional<size_t> end_of(size_t turn, const Names& other, size_t words_end) const;
  std::optional<Span> by_difference(size_t turn, size_t floor, const Names& other) const;
  static bool call_another(Json& message);
  static bool say_other_words(Json& message, size_t turn);
  size_t last_special_end(std::string_view text) const;

  const ChatTemplate& spoken_;
  const Conversation& conversation_;
  const Names& names_;
  const std::string& whole_;
  const std::vector<text::SpecialToken>& special_;
};

}  // namespace lockstep::chat
