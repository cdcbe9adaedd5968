#include "lockstep/data/formats/jsonl_field.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

namespace lockstep::data {
namespace {

using Json = nlohmann::json;

constexpr size_t kKeysShown = 5, kLongestText = 120;  // in messages; the line may be hostile

// Reads events instead of a tree: memory is bounded by the longest string, however deep the line nests.
class FieldReader final : public nlohmann::json_sax<Json> {
 public:
  FieldReader(const std::string& field, std::string& value) : field_(field), value_(value) {}

  bool null() override { return other_value(); }
  bool boolean(bool) override { return other_value(); }
  bool number_integer(number_integer_t) override { return other_value(); }
  bool number_unsigned(number_unsigned_t) override { return other_value(); }
  bool number_float(number_float_t, const string_t&) override { return other_value(); }
  bool binary(binary_t&) override { return other_value(); }
  bool start_array(size_t) override { return other_value() && ++depth_ > 0; }
  bool end_array() override { return --depth_ >= 0; }
  bool end_object() override { return --depth_ >= 0; }
  bool start_object(size_t) override {
    if (depth_ == 0) is_object_ = true;
    return other_value() && ++depth_ > 0;
  }
  bool key(string_t& name) override {
    if (depth_ != 1) return true;
    at_field_ = name == field_;
    if (!at_field_ && keys_.size() <= kKeysShown) keys_.push_back(name.substr(0, kLongestText));
    return true;
  }
  bool string(string_t& text) override {
    if (!at_field_) return true;
    value_ = std::move(text);
    found_ = true;
    wrong_type_ = at_field_ = false;
    return true;
  }
  bool parse_error(size_t position, const std::string&, const Json::exception& error) override {
    error_at_ = position > 0 ? position - 1 : 0;
    const std::string text = error.what();  // "[json...] parse error at line 1, column 5: syntax error ..."
    const size_t colon = text.find(": ");
    error_ = text.substr(colon == std::string::npos ? 0 : colon + 2);
    // What follows repeats the line.
    error_.resize(std::min({error_.size(), error_.find("; last read"), kLongestText}));
    return false;
  }

  FieldFault fault() const {
    if (!error_.empty()) return {210, error_at_, "is not JSON: " + error_};
    if (!is_object_) return {211, 0, "is not a JSON object"};
    if (wrong_type_) return {213, 0, fmt::format("has a field \"{}\" that is not a string", field_)};
    if (!found_) return {212, 0, fmt::format("has no field \"{}\"{}", field_, keys_text())};
    return {};
  }

 private:
  bool other_value() {
    wrong_type_ |= at_field_;
    at_field_ = false;
    return true;
  }
  std::string keys_text() const {
    std::string text;
    for (size_t i = 0; i < keys_.size() && i < kKeysShown; ++i) {
      text += fmt::format("{}\"{}\"", i == 0 ? ", only " : ", ", keys_[i]);
    }
    return text + (keys_.size() > kKeysShown ? ", ..." : "");
  }

  const std::string& field_;
  std::string& value_;
  std::vector<std::string> keys_;  // the others, for the message
  std::string error_;
  size_t error_at_ = 0;
  int64_t depth_ = 0;
  bool is_object_ = false, at_field_ = false, found_ = false, wrong_type_ = false;
};

}  // namespace

bool read_field(std::string_view line, const std::string& field, std::string& value, FieldFault& fault) {
  FieldReader reader(field, value);
  Json::sax_parse(line.begin(), line.end(), &reader);
  fault = reader.fault();
  return fault.number == 0;
}

}  // namespace lockstep::data
