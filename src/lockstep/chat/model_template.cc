#include "lockstep/chat/model_template.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"

namespace lockstep::chat {

namespace {

using Json = nlohmann::json;

constexpr int64_t kMostBytes = int64_t{64} << 20;

// The object in a file of the folder; null: there is none.
Json object_in(const std::string& path) {
  const base::ReadResult file = base::try_read_file(path, kMostBytes);
  if (!file.problem.empty()) return nullptr;
  Json object = Json::parse(file.text, nullptr, false);
  if (object.is_discarded() || !object.is_object())
    throw base::ConfigError(197, fmt::format("{} is not a JSON object; restore the file", path));
  return object;
}

// A template, or several with names, of which "default" counts.
std::optional<std::string> source_in(const Json& object, const std::string& path) {
  if (!object.is_object() || !object.contains("chat_template") || object["chat_template"].is_null())
    return std::nullopt;
  const Json& found = object["chat_template"];
  if (found.is_string()) return found.get<std::string>();
  const auto text = [](const Json& one, const char* key) {
    return one.is_object() && one.contains(key) && one[key].is_string() ? one[key].get<std::string>() : "";
  };
  if (found.is_array()) {
    for (const Json& one : found) {
      if (text(one, "name") == "default") return text(one, "template");
    }
  }
  throw base::ConfigError(
      197,
      fmt::format("{}: chat_template is neither text nor a list with a template named \"default\"", path));
}

// A token as tokenizer_config.json has it: its text, or an object that holds it.
std::optional<std::string> token_text(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_object() && value.contains("content") && value["content"].is_string())
    return value["content"].get<std::string>();
  return std::nullopt;
}

jinja::Template parsed(const std::string& file, const std::string& source) {
  try {
    return jinja::Template(source);
  } catch (const jinja::Failure& failure) {
    throw base::ConfigError(197,
                            fmt::format("{}: the chat template cannot be read: {}", file, failure.what()));
  }
}

}  // namespace

ModelTemplate::ModelTemplate(const std::string& file, const std::string& source)
    : file_(file), template_(parsed(file, source)) {}

std::optional<ModelTemplate> ModelTemplate::find(const std::string& folder) {
  const auto made = [&](const std::string& file, const std::string& source) {
    ModelTemplate found(file, source);
    found.read_special_tokens(folder);
    return found;
  };
  const std::string own = folder + "/chat_template.jinja";
  const base::ReadResult file = base::try_read_file(own, kMostBytes);
  if (file.problem.empty()) return made(own, file.text);
  for (const char* name : {"/chat_template.json", "/tokenizer_config.json"}) {
    const std::string path = folder + name;
    if (const auto source = source_in(object_in(path), path)) return made(path, *source);
  }
  return std::nullopt;
}

void ModelTemplate::read_special_tokens(const std::string& folder) {
  const Json config = object_in(folder + "/tokenizer_config.json"),
             map = object_in(folder + "/special_tokens_map.json");
  for (const char* name :
       {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"}) {
    for (const Json& object : {config, map}) {
      if (!object.is_object() || !object.contains(name)) continue;
      if (const auto text = token_text(object[name])) {
        special_.emplace_back(name, *text);
        break;
      }
    }
  }
}

jinja::Output ModelTemplate::render(const Conversation& conversation) const {
  std::vector<std::pair<std::string, jinja::Value>> names;
  for (const auto& [name, text] : special_) names.emplace_back(name, text);
  names.emplace_back("messages", jinja::Value::from_json(conversation.messages));
  names.emplace_back("tools", jinja::None{});
  names.emplace_back("documents", jinja::None{});
  names.emplace_back("add_generation_prompt", conversation.add_generation_prompt);
  try {
    return template_.render(names, std::time(nullptr));
  } catch (const jinja::Failure& failure) {
    throw base::ConfigError(
        197, fmt::format("the chat template of {} refuses these messages: {}", file_, failure.what()));
  }
}

}  // namespace lockstep::chat
