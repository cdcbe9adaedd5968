// {"conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hello"}]}
#include <fmt/format.h>

#include <string_view>

#include "lockstep/base/text.h"
#include "lockstep/chat/fault.h"
#include "lockstep/chat/forms/turns.h"

namespace lockstep::chat {
namespace {

struct Speaker {
  std::string_view from;
  const char* role;
};
constexpr Speaker kSpeakers[] = {
    {"human", "user"},
    {"user", "user"},
    {"gpt", "assistant"},
    {"assistant", "assistant"},
    {"chatgpt", "assistant"},
    {"bing", "assistant"},
    {"bard", "assistant"},
    {"model", "assistant"},
    {"system", "system"},
    {"tool", "tool"},
    {"observation", "tool"},
    {"function_response", "tool"},
    {"function_call", "assistant"},
};

const char* role_of(std::string_view from) {
  for (const Speaker& speaker : kSpeakers) {
    if (speaker.from == from) return speaker.role;
  }
  return nullptr;
}

// A call of a tool is written as JSON in the text: {"name": ..., "arguments": {...}}. Other text stays text.
void add_call(Json& made) {
  Json call = Json::parse(made["content"].get_ref<const std::string&>(), nullptr, false);
  if (!call.is_object() || !call.contains("name") || !call["name"].is_string()) return;
  Json function = Json::object();
  function["name"] = call["name"];
  function["arguments"] = call.value("arguments", Json::object());
  Json wrapped = Json::object();
  wrapped["type"] = "function";
  wrapped["function"] = std::move(function);
  made["content"] = "";
  made["tool_calls"] = Json::array({std::move(wrapped)});
}

}  // namespace

Json read_sharegpt_turn(const Json& turn, size_t number) {
  if (!turn["from"].is_string())
    throw Fault{261, fmt::format("has a message {} whose \"from\" is not text", number + 1)};
  const std::string from = turn["from"];
  const char* role = role_of(from);
  if (role == nullptr) {
    throw Fault{261,
                fmt::format("has a message {} from {}; known are human, gpt, system, tool, function_call and "
                            "observation",
                            number + 1, base::quoted(from, 40))};
  }
  if (!turn.contains("value")) throw Fault{261, fmt::format("has a message {} without a value", number + 1)};
  Json made = message(role, text_of_content(turn["value"], number));
  if (turn.contains("weight")) made["weight"] = turn["weight"];
  if (from == "function_call") add_call(made);
  return made;
}

Form conversations_form() {
  return {.name = "conversations", .fields = {"conversations"}, .read = [](const Json& row) {
            return read_turns_of(row, "conversations");
          }};
}

Form conversation_form() {
  return {.name = "conversation", .fields = {"conversation"}, .read = [](const Json& row) {
            return read_turns_of(row, "conversation");
          }};
}

}  // namespace lockstep::chat
