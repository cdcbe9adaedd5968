#include "lockstep/checkpoint/strict_json.h"

#include <fmt/format.h>

#include <unordered_set>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep::checkpoint {
namespace {

using Json = nlohmann::json;

constexpr int kDeepest = 8;                 // what we read needs four
constexpr int64_t kMostValues = 8'000'000;  // bounds memory: a small file can name very many values

// Watches the parser at work, so that a hostile text is refused before its tree is built.
class Watch {
 public:
  Watch(int number, const std::string& what) : number_(number), what_(what) {}

  bool operator()(int depth, Json::parse_event_t event, const Json& parsed) {
    if (event == Json::parse_event_t::object_end || event == Json::parse_event_t::array_end) return true;
    if (++values_ > kMostValues) refuse(fmt::format("holds more than {} values", kMostValues));
    if (event == Json::parse_event_t::key) return note_key(depth, parsed.get_ref<const std::string&>());
    if (event == Json::parse_event_t::value) return true;
    if (depth >= kDeepest) refuse(fmt::format("is nested deeper than {} levels", kDeepest));
    keys_.resize(static_cast<size_t>(depth) + 2);
    keys_.back().clear();
    return true;
  }

  [[noreturn]] void refuse(const std::string& why) const {
    throw base::DataError(number_, fmt::format("{} {}; fetch or export it again", what_, why));
  }

 private:
  bool note_key(int depth, const std::string& key) {
    if (!keys_.at(static_cast<size_t>(depth)).insert(key).second) {
      refuse(fmt::format("names {} twice", base::quoted(key)));
    }
    return true;
  }

  int number_;
  const std::string& what_;
  int64_t values_ = 0;
  std::vector<std::unordered_set<std::string>> keys_;  // of the open objects, by depth
};

}  // namespace

Json parse_strict(std::string_view text, int number, const std::string& what) {
  Watch watch(number, what);
  try {
    return Json::parse(text.begin(), text.end(), [&](int depth, Json::parse_event_t event, Json& parsed) {
      return watch(depth, event, parsed);
    });
  } catch (const Json::parse_error& error) {
    watch.refuse(fmt::format("is not JSON at byte {}", error.byte));
  } catch (const Json::exception&) {  // a number too large to be one
    watch.refuse("holds a number out of range");
  }
}

bool nested_deeper(std::string_view text, int levels) {
  int depth = 0;
  bool quoted = false;
  for (size_t i = 0; i < text.size() && depth <= levels; ++i) {
    const char c = text[i];
    if (c == '"') quoted = !quoted;
    if (quoted && c == '\\') ++i;
    if (!quoted && (c == '[' || c == '{')) ++depth;
    if (!quoted && (c == ']' || c == '}')) --depth;
  }
  return depth > levels;
}

}  // namespace lockstep::checkpoint
