// Where templates and the names of special tokens lie: chat_template.jinja, tokenizer_config.json and their
// kin.
#include <fmt/format.h>

#include <filesystem>

#include "lockstep/base/error.h"
#include "lockstep/base/mapped_file.h"
#include "lockstep/base/text.h"
#include "lockstep/chat/chat_template.h"
#include "lockstep/chat/fault.h"

namespace lockstep::chat {
namespace {

namespace fs = std::filesystem;
using jinja::Value;

constexpr int64_t kLargestFile = int64_t{64} << 20;
constexpr const char* kTokenNames[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                       "pad_token", "cls_token", "mask_token"};

bool is_file(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

std::string content_of(const fs::path& path) {
  const base::MappedFile file = base::MappedFile::open(path.string());
  if (file.size() > kLargestFile)
    throw base::DataError(268,
                          fmt::format("{} is larger than 64 MiB, and no chat template is", path.string()));
  return std::string(file.text());
}

Json json_of(const fs::path& path) {
  Json json = Json::parse(content_of(path), nullptr, false);
  if (!json.is_object()) throw base::DataError(268, fmt::format("{} is not a JSON object", path.string()));
  return json;
}

// What a folder or file offers. Of several named templates: "default", and "tool_use" for conversations with
// tools.
struct Sources {
  std::string file, plain, for_tools;
  bool found() const { return !file.empty(); }
};

Sources named_sources(const fs::path& path, const Json& value) {
  Sources sources{.file = path.string(), .plain = "", .for_tools = ""};
  if (value.is_string()) return sources.plain = value.get<std::string>(), sources;
  const auto take = [&](const std::string& name, const Json& text) {
    if (!text.is_string()) return;
    if (name == "default") sources.plain = text.get<std::string>();
    if (name == "tool_use") sources.for_tools = text.get<std::string>();
  };
  if (value.is_array()) {
    for (const Json& row : value) {
      if (row.is_object() && row.contains("name") && row["name"].is_string() && row.contains("template"))
        take(row["name"], row["template"]);
    }
  } else if (value.is_object()) {
    for (const auto& [name, text] : value.items()) take(name, text);
  }
  if (sources.plain.empty()) {
    throw base::DataError(268,
                          fmt::format("{} has a \"chat_template\" that is neither a text nor a list with one "
                                      "named \"default\"; name a file with data.chat_template",
                                      path.string()));
  }
  return sources;
}

Sources in_file(const fs::path& path) {
  if (path.extension() != ".json") return {.file = path.string(), .plain = content_of(path), .for_tools = ""};
  const Json json = json_of(path);
  if (!json.contains("chat_template") || json["chat_template"].is_null()) return {};
  return named_sources(path, json["chat_template"]);
}

Sources in_folder(const fs::path& folder) {
  for (const char* name : {"chat_template.jinja", "chat_template.json", "tokenizer_config.json"}) {
    if (!is_file(folder / name)) continue;
    Sources sources = in_file(folder / name);
    if (!sources.found()) continue;
    const fs::path for_tools = folder / "additional_chat_templates" / "tool_use.jinja";
    if (is_file(for_tools)) sources.for_tools = content_of(for_tools);
    return sources;
  }
  return {};
}

Sources find(const TemplateQuery& query, const std::vector<fs::path>& folders) {
  if (!query.file.empty()) {
    std::error_code error;
    const Sources sources = fs::is_directory(query.file, error) ? in_folder(query.file)
                            : is_file(query.file)               ? in_file(query.file)
                                                                : Sources{};
    if (sources.found()) return sources;
    throw base::ConfigError(
        267, fmt::format("data.chat_template = {} is no file with a chat template; name a .jinja "
                         "file, or a tokenizer_config.json that has a \"chat_template\"",
                         base::quoted(query.file, 200)));
  }
  std::vector<std::string> looked;
  for (const fs::path& folder : folders) {
    if (Sources sources = in_folder(folder); sources.found()) return sources;
    looked.push_back(folder.string());
  }
  throw NoTemplateError(
      267, fmt::format(
               "there is no chat template in {}: neither chat_template.jinja nor \"chat_template\" in "
               "tokenizer_config.json; name a template's file with data.chat_template, such as that of the "
               "model's instruction-tuned sibling",
               looked.empty() ? "any folder, because none is named" : base::listed(looked, "or")));
}

// A token is a text, or an object that holds one.
std::optional<std::string> token_text(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_object() && value.contains("content") && value["content"].is_string())
    return value["content"].get<std::string>();
  return std::nullopt;
}

using TokenNames = std::vector<std::pair<std::string, Value>>;

// null says that there is none, which counts; a key that is absent may stand in the next file.
void add_tokens(const Json& json, TokenNames& names, std::vector<std::string>& known) {
  for (const char* name : kTokenNames) {
    if (!json.contains(name) || std::find(known.begin(), known.end(), name) != known.end()) continue;
    known.emplace_back(name);
    if (const auto text = token_text(json[name])) names.emplace_back(name, *text);
  }
  const char* more = "additional_special_tokens";
  if (!json.contains(more) || !json[more].is_array() ||
      std::find(known.begin(), known.end(), more) != known.end())
    return;
  known.emplace_back(more);
  jinja::List all;
  for (const Json& one : json[more]) {
    if (const auto text = token_text(one)) all.items.emplace_back(*text);
  }
  if (!all.items.empty()) names.emplace_back(more, std::move(all));
}

TokenNames special_tokens(const std::vector<fs::path>& folders, const text::Tokenizer* tokenizer) {
  TokenNames names;
  std::vector<std::string> known;
  for (const fs::path& folder : folders) {
    for (const char* file : {"tokenizer_config.json", "special_tokens_map.json"}) {
      if (is_file(folder / file)) add_tokens(json_of(folder / file), names, known);
    }
    if (!known.empty()) return names;  // one folder's word: those of another may be of another model
  }
  if (tokenizer == nullptr) return names;
  const auto add = [&](const char* name, std::optional<int32_t> id) {
    for (const text::SpecialToken& token : tokenizer->special_tokens()) {
      if (id == token.id) return names.emplace_back(name, token.text), void();
    }
  };
  add("bos_token", tokenizer->begin_token());
  add("eos_token", tokenizer->end_token());
  add("pad_token", tokenizer->pad_token());
  return names;
}

std::vector<fs::path> folders_of(const std::vector<std::string>& paths) {
  std::vector<fs::path> folders;
  for (const std::string& path : paths) {
    if (path.empty()) continue;
    std::error_code error;
    fs::path folder = fs::is_directory(path, error) ? fs::path(path) : fs::path(path).parent_path();
    if (folder.empty()) folder = ".";
    if (std::find(folders.begin(), folders.end(), folder) == folders.end())
      folders.push_back(std::move(folder));
  }
  return folders;
}

}  // namespace

ChatTemplate open_template(const TemplateQuery& query) {
  const std::vector<fs::path> folders = folders_of(query.folders);
  const Sources sources = find(query, folders);
  try {
    ChatTemplate made(sources.plain, special_tokens(folders, query.tokenizer));
    if (!sources.for_tools.empty()) made.add_for_tools(sources.for_tools);
    return made;
  } catch (const Fault& fault) {
    throw base::DataError(fault.number, fmt::format("{} {}", sources.file, fault.sentence));
  }
}

}  // namespace lockstep::chat
