// {"prompt": "2 + 2 =", "completion": "4"}: a user's turn and the assistant's. Both may be lists of messages
// instead.
#include "lockstep/chat/conversation.h"
#include "lockstep/chat/fault.h"
#include "lockstep/chat/forms/turns.h"

namespace lockstep::chat {
namespace {

void add(const Json& row, const char* field, const char* role, Json& messages) {
  if (row.at(field).is_array()) {
    for (Json& turn : read_turns(row, field)) messages.push_back(std::move(turn));
  } else {
    messages.push_back(message(role, string_field(row, field)));
  }
}

Conversation read(const Json& row) {
  Conversation made = with_extras(row);
  if (const std::string system = optional_string_field(row, "system"); !system.empty())
    made.messages.push_back(message("system", system));
  add(row, "prompt", "user", made.messages);
  const size_t prompts = made.messages.size();
  add(row, "completion", "assistant", made.messages);
  // Only the completion is to be learned.
  for (size_t i = 0; i < prompts; ++i) {
    if (made.messages[i]["role"] == "assistant") made.messages[i]["weight"] = 0;
  }
  return made;
}

}  // namespace

Form completion_form() {
  return {.name = "prompt and completion", .fields = {"prompt", "completion"}, .read = read};
}

}  // namespace lockstep::chat
