// Preferences to tune on (tune.loss = dpo): two samples each, the prompt with the chosen answer and the
// prompt with the rejected one, of which only the answers are trained on (chat/preference.h).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lockstep/chat/preference.h"
#include "lockstep/data/documents/chat.h"

namespace lockstep::data {

struct PreferenceSpeech {
  SharedTokenizer tokenizer;
  std::optional<chat::ChatTemplate> spoken;  // none: texts only
};
PreferenceSpeech open_preference_speech(const recipe::Recipe& recipe);  // ConfigError 270

// Documents 2i and 2i + 1 are the chosen and the rejected one of pair i.
DocumentStore encode_preferences(const std::vector<std::string>& files, const PreferenceSpeech& speech,
                                 const ChatOptions& options);

}  // namespace lockstep::data
