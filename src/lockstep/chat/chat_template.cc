#include "lockstep/chat/chat_template.h"

#include <fmt/format.h>

#include <ctime>

#include "lockstep/chat/fault.h"

namespace lockstep::chat {
namespace {

using jinja::Value;

// Noon of the day that Llama's own templates name where they are told none; by the local clock, which
// strftime_now reads, so that it is the same day everywhere.
std::time_t fixed_day() {
  std::tm day{};
  day.tm_year = 2024 - 1900;
  day.tm_mon = 6;
  day.tm_mday = 26;
  day.tm_hour = 12;
  day.tm_isdst = -1;
  return std::mktime(&day);
}

jinja::Template parsed(const std::string& source) {
  try {
    return jinja::Template(source);
  } catch (const jinja::Failure& failure) {
    throw Fault{268, fmt::format("is not a template that can be read: {}", failure.what())};
  }
}

Json with_one_text(Json message, size_t number) {
  if (message.contains("content") && message["content"].is_array())
    message["content"] = text_of_content(message["content"], number);
  return message;
}

}  // namespace

ChatTemplate::ChatTemplate(const std::string& source, std::vector<std::pair<std::string, Value>> names)
    : template_(parsed(source)), names_(std::move(names)) {
  takes_parts_ = understands_parts();
}

void ChatTemplate::add_for_tools(const std::string& source) { for_tools_ = parsed(source); }

// By trying: such a template prints the text, others fail or print the list as Python would.
bool ChatTemplate::understands_parts() const {
  const std::string word = "a-text-to-look-for";
  Names names;
  names.messages.push_back(
      Value::from_json({{"role", "user"}, {"content", Json::array({{{"type", "text"}, {"text", word}}})}}));
  try {
    const std::string text = render(names, 1, Prompt::none).text;
    return text.find(word) != std::string::npos && text.find("'type'") == std::string::npos &&
           text.find("\"type\"") == std::string::npos;
  } catch (const jinja::Failure&) {
    return false;
  }
}

Names ChatTemplate::names_of(const Conversation& conversation) const {
  Names names;
  for (size_t i = 0; i < conversation.messages.size(); ++i) {
    const Json& message = conversation.messages[i];
    names.messages.push_back(Value::from_json(takes_parts_ ? message : with_one_text(message, i)));
  }
  names.tools = !conversation.tools.is_null();
  names.others.emplace_back("tools", Value::from_json(conversation.tools));
  for (const auto& [name, value] : conversation.names.items())
    names.others.emplace_back(name, Value::from_json(value));
  return names;
}

jinja::Output ChatTemplate::render(const Names& names, size_t count, Prompt prompt) const {
  static const std::time_t now = fixed_day();
  std::vector<std::pair<std::string, Value>> all = names_;
  all.emplace_back("tools", jinja::None{});
  all.emplace_back("documents", jinja::None{});
  all.insert(all.end(), names.others.begin(), names.others.end());
  jinja::List messages;
  messages.items.assign(names.messages.begin(), names.messages.begin() + static_cast<std::ptrdiff_t>(count));
  all.emplace_back("messages", std::move(messages));
  all.emplace_back("add_generation_prompt", prompt == Prompt::generation);
  return chosen(names.tools).render(all, now);
}

bool ChatTemplate::marks_generation(const Names& names) const {
  return chosen(names.tools).marks_generation();
}

}  // namespace lockstep::chat
