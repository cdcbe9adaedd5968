// {"instruction": "Translate to French", "input": "Hello", "output": "Bonjour"}: one turn each. "history"
// holds pairs of earlier ones, "system" a system message.
#include <fmt/format.h>

#include "lockstep/chat/conversation.h"
#include "lockstep/chat/fault.h"

namespace lockstep::chat {
namespace {

void add_history(const Json& row, Json& messages) {
  const auto found = row.find("history");
  if (found == row.end() || found->is_null()) return;
  if (!found->is_array()) throw Fault{261, "has a \"history\" that is not a list of pairs"};
  for (const Json& pair : *found) {
    if (!pair.is_array() || pair.size() != 2 || !pair[0].is_string() || !pair[1].is_string())
      throw Fault{261, "has a \"history\" that is not a list of pairs of texts"};
    messages.push_back(message("user", pair[0]));
    messages.push_back(message("assistant", pair[1]));
  }
}

Conversation read(const Json& row) {
  Conversation made = with_extras(row);
  if (const std::string system = optional_string_field(row, "system"); !system.empty())
    made.messages.push_back(message("system", system));
  add_history(row, made.messages);
  std::string asked = string_field(row, "instruction");
  if (const std::string input = optional_string_field(row, "input"); !input.empty())
    asked += (asked.empty() ? "" : "\n\n") + input;
  made.messages.push_back(message("user", asked));
  made.messages.push_back(message("assistant", string_field(row, "output")));
  return made;
}

}  // namespace

Form alpaca_form() { return {.name = "alpaca", .fields = {"instruction", "output"}, .read = read}; }

}  // namespace lockstep::chat
