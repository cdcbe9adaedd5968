#include "lockstep/cli/text/likelihoods.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/text.h"
#include "lockstep/text/utf8.h"

namespace lockstep::cli {

namespace {

using Json = nlohmann::json;

constexpr size_t kMostChoices = 1024;

struct Unusable {
  std::string why;
};

std::string text_at(const Json& object, const char* key) {
  if (!object[key].is_string()) throw Unusable{fmt::format("has a \"{}\" that is not text", key)};
  return object[key].get<std::string>();
}

int64_t answer_of(const Json& object, const std::vector<std::string>& choices) {
  if (!object.contains("answer")) throw Unusable{"has no \"answer\", the number or text of the right choice"};
  const Json& answer = object["answer"];
  const auto count = static_cast<int64_t>(choices.size());
  if (answer.is_number_integer()) {
    const auto number = answer.get<int64_t>();
    if (number >= 0 && number < count) return number;
    throw Unusable{fmt::format("has \"answer\" {}, but choices 0 to {}", number, count - 1)};
  }
  if (!answer.is_string()) throw Unusable{"has an \"answer\" that is neither a number nor text"};
  const auto found = std::find(choices.begin(), choices.end(), answer.get<std::string>());
  if (found != choices.end()) return found - choices.begin();
  throw Unusable{fmt::format("has the \"answer\" {}, which is none of its choices",
                             base::quoted(answer.get<std::string>(), 60))};
}

LikelihoodLine parse_line(const std::string& line) {
  const Json object = Json::parse(line, nullptr, false);
  if (object.is_discarded()) throw Unusable{"is not JSON"};
  if (!object.is_object()) throw Unusable{"is not an object"};
  LikelihoodLine parsed;
  if (object.contains("completion")) {
    if (!object.contains("prompt")) throw Unusable{"has a \"completion\", but no \"prompt\""};
    parsed.context = text_at(object, "prompt");
    parsed.choices = {text_at(object, "completion")};
    return parsed;
  }
  if (!object.contains("choices"))
    throw Unusable{"has neither \"choices\" nor \"prompt\" and \"completion\""};
  const char* key = object.contains("context") ? "context" : "question";
  if (!object.contains(key)) throw Unusable{"has \"choices\", but neither \"context\" nor \"question\""};
  parsed.context = text_at(object, key);
  const Json& choices = object["choices"];
  if (!choices.is_array() || choices.empty() || choices.size() > kMostChoices)
    throw Unusable{fmt::format("has \"choices\" that are not a list of 1 to {} texts", kMostChoices)};
  for (const Json& choice : choices) {
    if (!choice.is_string() || choice.get<std::string>().empty())
      throw Unusable{"has a choice that is empty or not text"};
    parsed.choices.push_back(choice.get<std::string>());
  }
  parsed.answer = answer_of(object, parsed.choices);
  return parsed;
}

// As Python's str.isspace().
bool is_space(uint32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

// Bytes without the white space at the end.
size_t stripped_size(const std::string& text) {
  const char* const begin = text.data();
  const char* end = begin + text.size();
  while (end > begin) {
    const char* at = text::char_before(end);
    const char* behind = at;
    if (!is_space(text::next_char(behind))) break;
    end = at;
  }
  return static_cast<size_t>(end - begin);
}

}  // namespace

std::vector<LikelihoodLine> read_likelihoods(const std::string& file,
                                             const std::function<void(const std::string& sentence)>& bad) {
  const std::string text = base::read_file(file);
  std::vector<LikelihoodLine> lines;
  int64_t number = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string line = text.substr(begin, end - begin);
    begin = end + 1;
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    try {
      lines.push_back(parse_line(line));
      lines.back().number = number;
    } catch (const Unusable& unusable) {
      bad(fmt::format("{} line {} {}", file, number, unusable.why));
    }
  }
  return lines;
}

run::ScoreItem score_item(const ModelText& text, const std::string& context, const std::string& continuation,
                          const PairOptions& options, int64_t longest, const std::string& where) {
  const auto refuse = [&](const std::string& why) { return base::ConfigError(198, where + " " + why); };
  run::ScoreItem item;
  if (context.empty()) {
    item.tokens = text.beginning();
    item.first = static_cast<int64_t>(item.tokens.size());
    const std::vector<int32_t> more = text.encode(options.delimiter + continuation, false);
    item.tokens.insert(item.tokens.end(), more.begin(), more.end());
  } else {
    const std::vector<int32_t> whole =
        text.encode(context + options.delimiter + continuation, options.add_bos);
    item.tokens = text.encode(context.substr(0, stripped_size(context)), options.add_bos);
    item.first = static_cast<int64_t>(item.tokens.size());
    // Where the whole joins the last letters of the context with the continuation, the context keeps its own.
    if (whole.size() > item.tokens.size())
      item.tokens.insert(item.tokens.end(), whole.begin() + item.first, whole.end());
  }
  if (item.first == 0) {  // white space alone, which the continuation has now
    const std::vector<int32_t> before = text.beginning();
    item.tokens.insert(item.tokens.begin(), before.begin(), before.end());
    item.first = static_cast<int64_t>(before.size());
  }
  const auto length = static_cast<int64_t>(item.tokens.size());
  if (item.first >= length) throw refuse("has a continuation that adds no token to its context");
  if (length - item.first > longest)
    throw refuse(fmt::format("has a continuation of {} tokens, more than the model's context of {}",
                             length - item.first, longest));
  if (const int64_t most = longest + 1; length > most) {
    item.tokens.erase(item.tokens.begin(), item.tokens.begin() + (length - most));
    item.first = std::max<int64_t>(1, item.first - (length - most));
  }
  return item;
}

}  // namespace lockstep::cli
