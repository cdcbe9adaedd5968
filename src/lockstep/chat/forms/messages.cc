// {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}], "tools":
// [...]}
#include <fmt/format.h>

#include "lockstep/chat/fault.h"
#include "lockstep/chat/forms/turns.h"

namespace lockstep::chat {
namespace {

// Keys that we do not know are for the template: tool_calls, name, reasoning_content.
const Json& checked(const Json& turn, size_t number) {
  if (!turn.contains("role") || !turn["role"].is_string())
    throw Fault{261, fmt::format("has a message {} without a role", number + 1)};
  if (!turn.contains("content") && !turn.contains("tool_calls"))
    throw Fault{261, fmt::format("has a message {} without content", number + 1)};
  if (turn.contains("content")) static_cast<void>(text_of_content(turn["content"], number));
  return turn;
}

}  // namespace

Json read_turns(const Json& row, const char* field) {
  const Json& turns = row.at(field);
  if (!turns.is_array()) throw Fault{261, fmt::format("has a field \"{}\" that is not a list", field)};
  if (turns.empty()) throw Fault{261, fmt::format("has a field \"{}\" without messages", field)};
  Json messages = Json::array();
  for (const Json& turn : turns) {
    const size_t number = messages.size();
    if (!turn.is_object())
      throw Fault{261, fmt::format("has a message {} that is not an object", number + 1)};
    messages.push_back(turn.contains("from") && !turn.contains("role") ? read_sharegpt_turn(turn, number)
                                                                       : checked(turn, number));
  }
  return messages;
}

Conversation read_turns_of(const Json& row, const char* field) {
  Conversation made = with_extras(row);
  made.messages = read_turns(row, field);
  const std::string system = optional_string_field(row, "system");
  if (!system.empty() && made.messages.front()["role"] != "system")
    made.messages.insert(made.messages.begin(), message("system", system));
  return made;
}

Form messages_form() {
  return {.name = "messages", .fields = {"messages"}, .read = [](const Json& row) {
            return read_turns_of(row, "messages");
          }};
}

}  // namespace lockstep::chat
