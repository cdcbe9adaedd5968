#include "lockstep/chat/conversation.h"

#include <fmt/format.h>

#include <algorithm>

#include "lockstep/base/text.h"
#include "lockstep/chat/fault.h"

namespace lockstep::chat {

const std::vector<Form>& forms() {
  static const std::vector<Form> all = {messages_form(), conversations_form(), conversation_form(),
                                        alpaca_form(), completion_form()};
  return all;
}

const Form* form_of(const std::vector<std::string>& keys) {
  const auto has = [&](const std::string& field) {
    return std::find(keys.begin(), keys.end(), field) != keys.end();
  };
  for (const Form& form : forms()) {
    if (std::all_of(form.fields.begin(), form.fields.end(), has)) return &form;
  }
  return nullptr;
}

const Form* form_of(const Json& row) {
  std::vector<std::string> keys;
  if (row.is_object()) {
    for (const auto& [key, value] : row.items()) {
      if (!value.is_null()) keys.push_back(key);
    }
  }
  return form_of(keys);
}

std::string forms_text() {
  std::vector<std::string> texts;
  for (const Form& form : forms()) {
    std::vector<std::string> fields;
    for (const std::string& field : form.fields) fields.push_back(fmt::format("\"{}\"", field));
    texts.push_back(base::join(fields, " and "));
  }
  return base::listed(texts, "or");
}

std::string text_of_content(const Json& content, size_t turn) {
  if (content.is_null()) return "";
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array())
    throw Fault{261,
                fmt::format("has a message {} whose content is neither text nor a list of texts", turn + 1)};
  std::string text;
  for (const Json& part : content) {
    const bool is_text = part.is_object() && part.value("type", Json("text")) == "text" &&
                         part.contains("text") && part["text"].is_string();
    if (!is_text) {
      const std::string type = part.is_object() && part.contains("type") && part["type"].is_string()
                                   ? part["type"].get<std::string>()
                                   : "unknown";
      throw Fault{261, fmt::format("has a message {} with a part of type {}; only text can be trained on",
                                   turn + 1, base::quoted(type, 40))};
    }
    text += part["text"].get<std::string>();
  }
  return text;
}

Conversation with_extras(const Json& row) {
  Conversation made;
  if (row.contains("tools") && !row["tools"].is_null()) {
    Json tools = row["tools"];
    // Columnar files have no column of objects with different fields, so datasets keep tools as JSON in a
    // text.
    if (tools.is_string()) tools = Json::parse(tools.get<std::string>(), nullptr, false);
    if (tools.is_string() || tools.is_discarded() || !tools.is_array())
      throw Fault{261, "has \"tools\" that are not a list"};
    if (!tools.empty()) made.tools = std::move(tools);
  }
  if (row.contains("chat_template_kwargs") && !row["chat_template_kwargs"].is_null()) {
    if (!row["chat_template_kwargs"].is_object())
      throw Fault{261, "has \"chat_template_kwargs\" that are not an object"};
    made.names = row["chat_template_kwargs"];
  }
  return made;
}

Json message(const char* role, std::string content) {
  Json made = Json::object();
  made["role"] = role;
  made["content"] = std::move(content);
  return made;
}

const std::string& string_field(const Json& row, const char* field) {
  const auto found = row.find(field);
  if (found == row.end() || !found->is_string())
    throw Fault{261, fmt::format("has a field \"{}\" that is not a string", field)};
  return found->get_ref<const std::string&>();
}

std::string optional_string_field(const Json& row, const char* field) {
  const auto found = row.find(field);
  if (found == row.end() || found->is_null()) return "";
  return string_field(row, field);
}

}  // namespace lockstep::chat
