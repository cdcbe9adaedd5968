// Which bytes of a rendered conversation are trained on: what the assistant says, and the token that ends its
// turn.
//
// Templates that mark it with {% generation %} are taken at their word. Of others, turn i lies between the
// text of the messages before it (with the prompt that begins an answer) and the text up to it, where both
// are beginnings of the whole. Some templates write earlier turns in another way than last ones (they leave
// out old thinking, or move the system message): there the turn is found by rendering the whole with other
// words in it. What cannot be told is a Fault, never a guess.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lockstep/chat/chat_template.h"

namespace lockstep::chat {

enum class TrainOn : uint8_t { assistant, last, all };
TrainOn train_on_of(std::string_view name);  // of data.train_on, which has been checked

struct Span {
  size_t begin, end;  // bytes
};

struct Rendered {
  std::string text;
  std::vector<Span> trained;  // in order, apart from each other
};

// `special`: the tokenizer's tokens that end turns. Fault 261 to 266.
Rendered render(const ChatTemplate& spoken, const Conversation& conversation, TrainOn train_on,
                const std::vector<text::SpecialToken>& special);

}  // namespace lockstep::chat
