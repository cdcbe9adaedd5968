// A preference: one prompt, an answer that was chosen and one that was rejected.
//
// Read from the forms that people keep them in, which are those of TRL's preference datasets:
//
//     {"prompt": "2 + 2 =", "chosen": " 4", "rejected": " 5"}                       texts, taken as they are
//     {"chosen": "2 + 2 = 4", "rejected": "2 + 2 = 5"}                              the prompt is what both
//     share
//     {"prompt": [{"role": "user", ...}], "chosen": [{"role": "assistant", ...}], "rejected": [...]}
//     {"chosen": [{"role": "user", ...}, {"role": "assistant", ...}], "rejected": [...]}
//
// Messages go through the model's chat template; texts do not. Only the answers are trained on.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "lockstep/chat/conversation.h"

namespace lockstep::chat {

struct TextPreference {
  std::string prompt, chosen, rejected;
};

// Both conversations are whole: the prompt and an answer. The assistant's turns in the prompt have weight 0.
struct ChatPreference {
  Conversation chosen, rejected;
};

using Preference = std::variant<TextPreference, ChatPreference>;

bool is_preference(const std::vector<std::string>& keys);  // by the keys of an object
Preference read_preference(const Json& row);               // Fault 261, 390, 391, 392

}  // namespace lockstep::chat
