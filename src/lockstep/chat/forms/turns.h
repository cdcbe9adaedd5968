// Lists of turns, as "messages" and "conversations" hold them.
#pragma once

#include "lockstep/chat/conversation.h"

namespace lockstep::chat {

// Turns with role and content stay as they are; those with from and value (ShareGPT) become such. Fault 261.
Json read_turns(const Json& row, const char* field);
Conversation read_turns_of(const Json& row, const char* field);  // and a text "system" beside the turns

Json read_sharegpt_turn(const Json& turn, size_t number);  // sharegpt.cc

}  // namespace lockstep::chat
