// A conversation, in the form that chat templates take: messages with a role and a content.
//
// People keep conversations in several forms. Each has a file in forms/ and a row in its table: the fields by
// which its objects are known, and how one of them is read. What a reader gives is what Hugging Face's
// datasets would hand to apply_chat_template; nothing is dropped without a word.
//
//     const Form* form = form_of(row);          // null: no conversation
//     Conversation conversation = form->read(row);
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::chat {

using Json = nlohmann::ordered_json;  // templates see keys in the order of the file

struct Conversation {
  Json messages = Json::array();  // objects, each with a text as "role"
  Json tools = nullptr;           // a list, where the row has one
  Json names = Json::object();    // "chat_template_kwargs": further names for the template
};

struct Form {
  const char* name;                       // "messages"
  std::vector<std::string> fields;        // all of them are there
  Conversation (*read)(const Json& row);  // Fault 261
};
const std::vector<Form>& forms();

// By the keys of an object; null: it is no conversation.
const Form* form_of(const std::vector<std::string>& keys);
const Form* form_of(const Json& row);
std::string forms_text();  // "messages, conversations, instruction and output, ...", for messages

// What readers share. The text of a turn: a string, or a list of {"type": "text", "text": ...} put together.
// Fault 261: pictures, numbers. null: none.
std::string text_of_content(const Json& content, size_t turn);
Conversation with_extras(const Json& row);  // tools and names; without messages
Json message(const char* role, std::string content);
const std::string& string_field(const Json& row, const char* field);    // Fault 261: absent, no string
std::string optional_string_field(const Json& row, const char* field);  // empty: absent or null

// The forms' own files.
Form messages_form();
Form conversations_form();
Form conversation_form();
Form alpaca_form();
Form completion_form();

}  // namespace lockstep::chat
