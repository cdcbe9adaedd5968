#include "lockstep/cli/text/prompts.h"

#include <fmt/format.h>

#include <iostream>
#include <iterator>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/text.h"

namespace lockstep::cli {

namespace {

using Json = nlohmann::ordered_json;

std::string text_of(const std::string& file) {
  if (file != "-") return base::read_file(file);
  return {std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>()};
}

bool is_jsonl(const std::string& file, const std::string& text) {
  if (file.ends_with(".jsonl") || file.ends_with(".json")) return true;
  const size_t first = text.find_first_not_of(" \t\r\n");
  return first != std::string::npos && text[first] == '{' && !file.ends_with(".txt");
}

WrittenPrompt from_json(const std::string& line, std::string where) {
  const Json object = Json::parse(line, nullptr, false);
  const auto refuse = [&](const std::string& why) {
    return base::ConfigError(
        198,
        fmt::format("{} {}; expected an object with \"prompt\" (text) or \"messages\" (a list)", where, why));
  };
  if (object.is_discarded()) throw refuse("is not JSON");
  if (!object.is_object()) throw refuse("is not an object");
  const bool plain = object.contains("prompt"), chat = object.contains("messages");
  if (plain && chat) throw refuse("has both \"prompt\" and \"messages\"");
  if (!plain && !chat) throw refuse("has neither");
  if (plain && !object["prompt"].is_string()) throw refuse("has a \"prompt\" that is not text");
  if (chat && (!object["messages"].is_array() || object["messages"].empty()))
    throw refuse("has \"messages\" that are not a list of messages");
  WrittenPrompt prompt{.where = std::move(where)};
  if (plain) prompt.text = object["prompt"].get<std::string>();
  if (chat) prompt.messages = object["messages"];
  return prompt;
}

}  // namespace

std::vector<WrittenPrompt> read_prompts(const std::string& file) {
  const std::string text = text_of(file), name = file == "-" ? "standard input" : file;
  const bool jsonl = is_jsonl(file, text);
  std::vector<WrittenPrompt> prompts;
  int64_t number = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    std::string line = text.substr(begin, end - begin);
    begin = end + 1;
    if (line.ends_with('\r')) line.pop_back();
    std::string where = fmt::format("{} line {}", name, ++number);
    const bool blank = line.find_first_not_of(" \t") == std::string::npos;
    if (blank && jsonl) continue;
    if (line.empty()) {
      throw base::ConfigError(
          198,
          fmt::format(
              "{} is empty; remove it, or write {{\"prompt\": \"\"}} in a .jsonl file for a text without "
              "a beginning",
              where));
    }
    prompts.push_back(jsonl ? from_json(line, std::move(where))
                            : WrittenPrompt{.text = std::move(line), .where = std::move(where)});
  }
  if (prompts.empty()) throw base::ConfigError(198, fmt::format("{} has no prompts", name));
  return prompts;
}

}  // namespace lockstep::cli
