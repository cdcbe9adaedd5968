// Python's "%s is %d" % (name, age), which the filter `format` does too.
#include <fmt/format.h>

#include <cmath>
#include <cstdio>

#include "lockstep/chat/jinja/operations.h"
#include "lockstep/text/utf8.h"

namespace lockstep::chat::jinja {

namespace {

constexpr int64_t kWidest = 10'000;  // a template is a stranger's: it shall not fill the memory

// One %..., read from behind its %.
struct Directive {
  std::optional<std::string> name;  // %(name)s
  std::string flags;
  std::optional<int64_t> width, precision;
  char kind = '%';
};

class Formatter {
 public:
  Formatter(const std::string& pattern, const Value& values) : rest_(pattern), values_(values) {
    const List* list = values.get<List>();
    if (list != nullptr && list->tuple) all_ = list->items;
    alone_ = list == nullptr || !list->tuple;
    if (alone_) all_ = {values};
  }

  std::string text() {
    std::string out;
    for (;;) {
      const size_t at = rest_.find('%');
      out += rest_.substr(0, at);
      if (at == std::string_view::npos) break;
      rest_.remove_prefix(at + 1);
      out += one(directive());
    }
    // A list or dictionary is taken for one that names look into.
    const bool by_name = alone_ && (values_.get<Dict>() != nullptr || values_.get<List>() != nullptr);
    if (next_ < all_.size() && !by_name) fail("not all arguments converted during string formatting");
    return out;
  }

 private:
  char take() {
    if (rest_.empty()) fail("incomplete format");
    const char c = rest_.front();
    rest_.remove_prefix(1);
    return c;
  }
  const Value& next() {
    if (next_ >= all_.size()) fail("not enough arguments for format string");
    return all_[next_++];
  }
  // Digits, or * for the next value.
  std::optional<int64_t> count() {
    if (rest_.starts_with('*')) {
      take();
      return limited(int_of(next()));
    }
    int64_t number = 0;
    bool any = false;
    for (; !rest_.empty() && rest_[0] >= '0' && rest_[0] <= '9'; any = true)
      number = limited(number * 10 + (take() - '0'));
    return any ? std::optional(number) : std::nullopt;
  }
  static int64_t limited(int64_t number) {
    if (number > kWidest || number < -kWidest) fail("a width that is too large");
    return number;
  }

  Directive directive() {
    Directive made;
    if (rest_.starts_with('(')) {
      size_t end = 0;
      for (int open = 0; end < rest_.size(); ++end) {
        open += rest_[end] == '(' ? 1 : rest_[end] == ')' ? -1 : 0;
        if (open == 0) break;
      }
      if (end == rest_.size()) fail("incomplete format key");
      made.name = std::string(rest_.substr(1, end - 1));
      rest_.remove_prefix(end + 1);
    }
    while (!rest_.empty() && std::string_view("#0- +").find(rest_[0]) != std::string_view::npos)
      made.flags += take();
    made.width = count();
    if (made.width && *made.width < 0) made.flags += '-', made.width = -*made.width;
    if (rest_.starts_with('.')) {
      take();
      made.precision = std::max<int64_t>(0, count().value_or(0));
    }
    if (!rest_.empty() && std::string_view("hlL").find(rest_[0]) != std::string_view::npos) take();
    made.kind = take();
    return made;
  }

  Value value_of(const Directive& directive) {
    if (!directive.name) return next();
    const Dict* dict = values_.get<Dict>();
    if (dict == nullptr) fail("format requires a mapping");
    const Value* found = dict->find(Value(*directive.name));
    if (found == nullptr) fail(to_repr(Value(*directive.name)));
    return *found;
  }

  std::string one(const Directive& d) {
    if (d.kind == '%') return "%";
    if (std::string_view("diuoxXeEfFgGcrsa").find(d.kind) == std::string_view::npos)
      fail(fmt::format("unsupported format character '{}' ({:#x})", d.kind,
                       static_cast<unsigned char>(d.kind)));
    const Value value = value_of(d);
    switch (d.kind) {
      case 's':
        return padded(d, cut(d, to_str(value)));
      case 'r':
        return padded(d, cut(d, to_repr(value)));
      case 'a':
        return padded(d, cut(d, ascii(to_repr(value))));
      case 'c':
        return padded(d, character(value));
      default:
        return number(d, value);
    }
  }

  static std::string character(const Value& value) {
    std::string out;
    if (const std::string* text = value.get<std::string>()) {
      if (characters_of(*text).size() != 1) fail("%c requires int or char");
      return *text;
    }
    const int64_t code = int_of(value);
    if (code < 0 || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000))
      fail("%c arg not in range(0x110000)");
    text::append_char(out, static_cast<uint32_t>(code));
    return out;
  }
  static std::string ascii(const std::string& text) {
    std::string out;
    for (const std::string_view one : characters_of(text)) {
      const char* at = one.data();
      const uint32_t code = text::next_char(at);
      out += code < 0x80      ? std::string(one)
             : code < 0x100   ? fmt::format("\\x{:02x}", code)
             : code < 0x10000 ? fmt::format("\\u{:04x}", code)
                              : fmt::format("\\U{:08x}", code);
    }
    return out;
  }
  static std::string cut(const Directive& d, const std::string& text) {
    if (!d.precision) return text;
    std::string out;
    int64_t taken = 0;
    for (const std::string_view one : characters_of(text)) {
      if (++taken > *d.precision) break;
      out += one;
    }
    return out;
  }
  static std::string padded(const Directive& d, const std::string& text) {
    const int64_t lacking = d.width.value_or(0) - static_cast<int64_t>(characters_of(text).size());
    if (lacking <= 0) return text;
    const std::string space(static_cast<size_t>(lacking), ' ');
    return d.flags.find('-') != std::string::npos ? text + space : space + text;
  }

  static std::string number(const Directive& d, const Value& value) {
    const bool whole = std::string_view("diuoxX").find(d.kind) != std::string_view::npos;
    const double* real = value.get<double>();
    const bool other_base = std::string_view("oxX").find(d.kind) != std::string_view::npos;
    if (const Undefined* undefined = value.get<Undefined>()) fail(undefined->what);
    if (real == nullptr && value.get<int64_t>() == nullptr && value.get<bool>() == nullptr) {
      if (!whole) fail(fmt::format("must be real number, not {}", type_name(value)));
      fail(fmt::format("%{} format: {} is required, not {}", d.kind,
                       other_base ? "an integer" : "a real number", type_name(value)));
    }
    std::string pattern = "%" + d.flags + fmt::format("{}", d.width.value_or(0));
    if (!d.width) pattern.pop_back();
    if (d.precision) pattern += fmt::format(".{}", *d.precision);
    if (!whole)
      return printed(pattern + d.kind, real != nullptr ? *real : static_cast<double>(int_of(value)));
    int64_t integer = 0;
    if (real == nullptr) {
      integer = int_of(value);
    } else if (other_base) {
      fail(fmt::format("%{} format: an integer is required, not float", d.kind));
    } else if (!std::isfinite(*real) || std::abs(*real) >= 9e18) {
      fail("a number beyond 64 bits");
    } else {
      integer = static_cast<int64_t>(*real);
    }
    if (other_base && (integer < 0 || d.flags.find('#') != std::string::npos))
      fail(fmt::format("%{} of a number below zero, and with #, is not supported in templates", d.kind));
    return printed(pattern + "ll" + (other_base ? d.kind : 'd'), static_cast<long long>(integer));
  }
  template <class Number>
  static std::string printed(const std::string& pattern, Number number) {
    // `pattern` is made here, of flags, digits and a kind that fits the number.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    std::string out(static_cast<size_t>(std::snprintf(nullptr, 0, pattern.c_str(), number)), '\0');
    std::snprintf(out.data(), out.size() + 1, pattern.c_str(), number);
#pragma GCC diagnostic pop
    return out;
  }

  std::string_view rest_;
  const Value& values_;
  std::vector<Value> all_;
  size_t next_ = 0;
  bool alone_ = false;
};

}  // namespace

std::string formatted(const std::string& pattern, const Value& values) {
  return Formatter(pattern, values).text();
}

}  // namespace lockstep::chat::jinja
