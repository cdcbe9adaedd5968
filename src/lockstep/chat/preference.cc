#include "lockstep/chat/preference.h"

#include <fmt/format.h>

#include <algorithm>

#include "lockstep/chat/fault.h"
#include "lockstep/chat/forms/turns.h"

namespace lockstep::chat {
namespace {

[[noreturn]] void refuse_form(const char* field, const std::string& why) {
  throw Fault{391, fmt::format("has a field \"{}\" {}", field, why)};
}

// The texts' common beginning. A space at its end belongs to the answers, whose tokens begin with it; and a
// character is not cut.
std::string shared_beginning(const std::string& a, const std::string& b) {
  auto size = static_cast<size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
  while (size > 0 && size < std::max(a.size(), b.size()) &&
         ((static_cast<unsigned char>((size < a.size() ? a : b)[size]) & 0xC0) == 0x80))
    --size;
  if (size > 0 && a[size - 1] == ' ') --size;
  return a.substr(0, size);
}

TextPreference read_texts(const Json& row) {
  TextPreference read{
      .prompt = "", .chosen = string_field(row, "chosen"), .rejected = string_field(row, "rejected")};
  const auto prompt = row.find("prompt");
  if (prompt != row.end() && !prompt->is_null()) {
    read.prompt = string_field(row, "prompt");
  } else {
    read.prompt = shared_beginning(read.chosen, read.rejected);
    read.chosen.erase(0, read.prompt.size());
    read.rejected.erase(0, read.prompt.size());
  }
  if (read.prompt.empty())
    throw Fault{391, "has no prompt: no field \"prompt\", and answers that share no beginning"};
  for (const auto& [field, text] :
       {std::pair("chosen", &read.chosen), std::pair("rejected", &read.rejected)}) {
    if (text->empty()) refuse_form(field, "without an answer behind the prompt");
  }
  return read;
}

// A message, or a list of them.
Json turns_in(const Json& row, const char* field) {
  const Json& value = row.at(field);
  if (value.is_array()) return read_turns(row, field);
  if (value.is_object()) return read_turns(Json{{field, Json::array({value})}}, field);
  if (value.is_string()) return Json::array({message("assistant", value.get<std::string>())});
  refuse_form(field, "that is neither a text nor a list of messages");
}

size_t shared_turns(const Json& a, const Json& b) {
  const size_t most = std::min(a.size(), b.size()) - 1;  // an answer is left of each
  size_t count = 0;
  while (count < most && a[count] == b[count]) ++count;
  return count;
}

void drop_first(Json& turns, size_t count) {
  turns.erase(turns.begin(), turns.begin() + static_cast<std::ptrdiff_t>(count));
}

bool says(const Json& turns, const std::string& text) {
  for (size_t i = 0; i < turns.size(); ++i) {
    if (turns[i].contains("content") && text_of_content(turns[i]["content"], i) == text) return true;
  }
  return false;
}

// The prompt's turns, taken out of the answers where they begin with it.
Json take_prompt(const Json& row, Json& chosen, Json& rejected) {
  for (const char* field : {"prompt", "messages", "conversations"}) {
    if (const auto found = row.find(field); found != row.end() && found->is_array())
      return read_turns(row, field);
  }
  Json shared = Json::array();
  const size_t count = shared_turns(chosen, rejected);
  for (size_t i = 0; i < count; ++i) shared.push_back(chosen[i]);
  drop_first(chosen, count), drop_first(rejected, count);
  const std::string prompt = optional_string_field(row, "prompt");
  if (prompt.empty() || says(shared, prompt)) return shared;
  if (!shared.empty())
    refuse_form("prompt", "that is not among the messages which \"chosen\" and \"rejected\" share");
  return Json::array({message("user", prompt)});
}

ChatPreference read_chats(const Json& row) {
  Json chosen = turns_in(row, "chosen"), rejected = turns_in(row, "rejected");
  Json prompt = take_prompt(row, chosen, rejected);
  if (prompt.empty())
    throw Fault{391,
                "has no prompt: no field \"prompt\", and answers that share no message at their beginning"};
  if (const std::string system = optional_string_field(row, "system");
      !system.empty() && prompt.front()["role"] != "system")
    prompt.insert(prompt.begin(), message("system", system));
  for (Json& turn : prompt) {
    if (turn["role"] == "assistant") turn["weight"] = 0;
  }
  ChatPreference read{.chosen = with_extras(row), .rejected = with_extras(row)};
  for (auto& [whole, answer] : {std::pair(&read.chosen, &chosen), std::pair(&read.rejected, &rejected)}) {
    whole->messages = prompt;
    for (const Json& turn : *answer) whole->messages.push_back(turn);
  }
  return read;
}

bool is_filled(const Json& row, const char* field) { return row.contains(field) && !row[field].is_null(); }

}  // namespace

bool is_preference(const std::vector<std::string>& keys) {
  const auto has = [&](const char* key) { return std::find(keys.begin(), keys.end(), key) != keys.end(); };
  return has("chosen") && has("rejected");
}

Preference read_preference(const Json& row) {
  if (!row.is_object() || !is_filled(row, "chosen") || !is_filled(row, "rejected"))
    throw Fault{390, "is not a pair of answers: it has no \"chosen\" and \"rejected\""};
  if (row["chosen"] == row["rejected"])
    throw Fault{392, "has the same answer as \"chosen\" and as \"rejected\", which says nothing"};
  const bool lists = !row["chosen"].is_string() || !row["rejected"].is_string() ||
                     (row.contains("prompt") && row["prompt"].is_array()) || row.contains("messages") ||
                     row.contains("conversations");
  if (lists) return read_chats(row);
  return read_texts(row);
}

}  // namespace lockstep::chat
