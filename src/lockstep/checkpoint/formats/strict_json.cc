#include "lockstep/checkpoint/formats/strict_json.h"

#include <fmt/format.h>

#include <unordered_set>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/checkpoint/checkpoint_error.h"

namespace lockstep::checkpoint {
namespace {

using Json = nlohmann::json;

constexpr size_t kDeepest = 8;              // what we read needs four
constexpr int64_t kMostValues = 8'000'000;  // bounds memory: a small file can name very many values
constexpr int kOutOfRange = 406;            // the library's number for a number that no double holds

// Reads the text once without keeping it, so that a hostile one is refused before its tree is built. (A
// callback of Json::parse would do it on the way, but then every end of an object searches its whole parent:
// minutes for a header of 100,000 tensors.)
class Watch : public nlohmann::json_sax<Json> {
 public:
  Watch(int number, const std::string& what) : number_(number), what_(what) {}

  bool null() override { return count(); }
  bool boolean(bool) override { return count(); }
  bool number_integer(number_integer_t) override { return count(); }
  bool number_unsigned(number_unsigned_t) override { return count(); }
  bool number_float(number_float_t, const string_t&) override { return count(); }
  bool string(string_t&) override { return count(); }
  bool binary(binary_t&) override { return count(); }
  bool start_object(size_t) override { return open(); }
  bool start_array(size_t) override { return open(); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t& key) override {
    if (!keys_.back().insert(key).second) refuse(fmt::format("names {} twice", base::quoted(key)));
    return count();
  }
  bool parse_error(size_t at, const std::string&, const Json::exception& error) override {
    if (error.id == kOutOfRange) refuse("contains a number out of range");
    refuse(fmt::format("is not JSON at byte {}", at));
  }

 private:
  [[noreturn]] void refuse(const std::string& why) const {
    throw CheckpointError(number_, fmt::format("{} {}; download or export it again", what_, why));
  }
  bool count() {
    if (++values_ > kMostValues) refuse(fmt::format("contains more than {} values", kMostValues));
    return true;
  }
  bool open() {
    if (keys_.size() >= kDeepest) refuse(fmt::format("is nested deeper than {} levels", kDeepest));
    keys_.emplace_back();
    return count();
  }
  bool close() {
    keys_.pop_back();
    return true;
  }

  int number_;
  const std::string& what_;
  int64_t values_ = 0;
  std::vector<std::unordered_set<std::string>> keys_;  // of the open objects, by depth; a list has none
};

}  // namespace

Json parse_strict(std::string_view text, int number, const std::string& what) {
  Watch watch(number, what);
  Json::sax_parse(text.begin(), text.end(), &watch);
  return Json::parse(text.begin(), text.end());
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
