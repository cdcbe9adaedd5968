#include "lockstep/see/flat_object.h"

#include <charconv>
#include <cmath>

#include "lockstep/see/run_events.h"

namespace lockstep::see {

namespace {

class Reader {
 public:
  explicit Reader(std::string_view text) : at_(text.data()), end_(text.data() + text.size()) {}

  bool take(char wanted) {
    skip_blanks();
    if (at_ == end_ || *at_ != wanted) return false;
    ++at_;
    return true;
  }
  bool take_word(std::string_view word) {
    if (static_cast<size_t>(end_ - at_) < word.size() || std::string_view(at_, word.size()) != word)
      return false;
    at_ += word.size();
    return true;
  }
  // In quotes, without escapes or control characters.
  std::optional<std::string_view> text() {
    if (!take('"')) return std::nullopt;
    const char* from = at_;
    while (at_ != end_ && *at_ != '"' && *at_ != '\\' && static_cast<unsigned char>(*at_) >= ' ' &&
           *at_ < 127)
      ++at_;
    if (at_ == end_ || *at_ != '"') return std::nullopt;
    return std::string_view(from, static_cast<size_t>(at_++ - from));
  }
  // As JSON writes it: no sign but a minus, no leading zero, digits on both sides of the point.
  std::optional<double> number() {
    const char* from = at_;
    if (at_ != end_ && *at_ == '-') ++at_;
    const char* digits = at_;
    if (!digit()) return std::nullopt;
    while (digit()) ++at_;
    if (*digits == '0' && at_ - digits > 1) return std::nullopt;
    if (at_ != end_ && *at_ == '.') {
      ++at_;
      if (!digit()) return std::nullopt;
    }
    double value = 0;
    const auto [stop, error] = std::from_chars(from, end_, value);
    if (error != std::errc()) return std::nullopt;
    integer_ = stop == at_ &&
               std::string_view(from, static_cast<size_t>(stop - from)).find('.') == std::string_view::npos;
    at_ = stop;
    return value;
  }
  bool was_integer() const { return integer_; }
  bool starts_text() {
    skip_blanks();
    return at_ != end_ && *at_ == '"';
  }
  bool starts_word() const { return at_ != end_ && *at_ >= 'a' && *at_ <= 'z'; }
  bool done() {
    skip_blanks();
    return at_ == end_;
  }

 private:
  bool digit() const { return at_ != end_ && *at_ >= '0' && *at_ <= '9'; }
  void skip_blanks() {
    while (at_ != end_ && (*at_ == ' ' || *at_ == '\t' || *at_ == '\r')) ++at_;
  }
  const char *at_, *end_;
  bool integer_ = false;
};

}  // namespace

std::optional<LogRow> read_flat_row(std::string_view line) {
  constexpr double kMostExact = 9e15;  // integers up to here are doubles
  Reader in(line);
  LogRow row{.step = 0, .seconds = 0, .values = {}};
  row.values.reserve(12);
  bool has_step = false;
  if (!in.take('{')) return std::nullopt;
  do {
    const auto key = in.text();
    if (!key || !in.take(':')) return std::nullopt;
    if (in.starts_text()) {
      const auto value = in.text();
      if (!value) return std::nullopt;
      if (*key == "time") row.seconds = unix_seconds(*value);
      if (is_number_word(*value)) row.words.emplace_back(*key, *value);
    } else if (in.starts_word()) {
      if (!in.take_word("null") && !in.take_word("true") && !in.take_word("false")) return std::nullopt;
    } else {
      const auto value = in.number();
      if (!value || !std::isfinite(*value)) return std::nullopt;
      if (*key != "step") {
        row.values.emplace_back(*key, *value);
      } else {
        if (!in.was_integer() || std::abs(*value) > kMostExact) return std::nullopt;
        row.step = static_cast<int64_t>(*value), has_step = true;
      }
    }
  } while (in.take(','));
  if (!in.take('}') || !in.done() || !has_step) return std::nullopt;
  return row;
}

}  // namespace lockstep::see
