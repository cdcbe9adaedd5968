// The normalizers of tokenizer.json, and those that other files need.
#include <algorithm>
#include <optional>

#include "lockstep/text/byte_level.h"
#include "lockstep/text/charsmap.h"
#include "lockstep/text/json_part.h"
#include "lockstep/text/normalize.h"
#include "lockstep/text/pattern.h"
#include "lockstep/text/steps.h"
#include "lockstep/text/utf8.h"

namespace lockstep::text {
namespace {

using Made = std::unique_ptr<Normalizer>;

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char byte) { return static_cast<signed char>(byte) >= 0; });
}

class Forms final : public Normalizer {
 public:
  explicit Forms(Form form) : form_(form) {}
  void apply(std::string& text) const override { text = normal_form(form_, text); }
  bool leaves(std::string_view text) const override { return is_in_form(form_, text); }
  bool keeps_cuts() const override { return true; }

 private:
  Form form_;
};
template <Form kForm>
Made make_form(const Json&) {
  return std::make_unique<Forms>(kForm);
}

class Lowercase final : public Normalizer {
 public:
  void apply(std::string& text) const override { text = lowercase(text); }
  bool keeps_cuts() const override { return true; }
};

// Keeps the characters without this bit.
void drop(std::string& text, uint32_t bit) {
  const Unicode& unicode = Unicode::table();
  std::string out;
  for (const char *at = text.data(), *end = at + text.size(); at < end;) {
    const char* begin = at;
    if (!(unicode.bits(next_char(at)) & bit)) out.append(begin, at);
  }
  text = std::move(out);
}

class StripAccents final : public Normalizer {
 public:
  void apply(std::string& text) const override {
    if (!is_ascii(text)) drop(text, kAccent);
  }
};

class Strip final : public Normalizer {
 public:
  Strip(bool left, bool right) : left_(left), right_(right) {}
  void apply(std::string& text) const override {
    const Unicode& unicode = Unicode::table();
    const char *begin = text.data(), *end = begin + text.size();
    while (left_ && begin < end) {
      const char* at = begin;
      if (!(unicode.bits(next_char(at)) & kSpace)) break;
      begin = at;
    }
    while (right_ && begin < end) {
      const char* before = char_before(end);
      const char* at = before;
      if (!(unicode.bits(next_char(at)) & kSpace)) break;
      end = before;
    }
    text = std::string(begin, end);
  }
  bool drops_start(std::string_view text) const override {
    const char* at = text.data();
    return left_ && !text.empty() && (Unicode::table().bits(next_char(at)) & kSpace);
  }

 private:
  bool left_, right_;
};

class Replace final : public Normalizer {
 public:
  Replace(const PatternText& pattern, std::string content)
      : literal_(pattern.text), content_(std::move(content)) {
    // Nothing is found before each character and at the end, as by a regex.
    if (pattern.is_regex || literal_.empty()) pattern_.emplace(pattern.text, Engine::oniguruma);
  }
  void apply(std::string& text) const override {
    if (!pattern_) return replace_literal(text);
    std::string out;
    size_t done = 0;
    pattern_->each_match(text, [&](size_t begin, size_t end) {
      out.append(text, done, begin - done).append(content_);
      done = end;
    });
    text = out.append(text, done);
  }
  bool leaves(std::string_view text) const override {
    return !pattern_ && text.find(literal_) == std::string_view::npos;
  }
  bool drops_start(std::string_view text) const override {
    if (!pattern_) return !literal_.empty() && text.starts_with(literal_) && drops(literal_);
    bool dropped = false;
    pattern_->each_match(text, [&](size_t begin, size_t end) {
      dropped |= begin == 0 && end > 0 && drops(text.substr(0, end));
    });
    return dropped;
  }

 private:
  // What stands in a match's place belongs to the match's last character.
  bool drops(std::string_view match) const {
    const char* at = match.data();
    next_char(at);
    return content_.empty() || at < match.data() + match.size();
  }
  void replace_literal(std::string& text) const {
    std::string out;
    size_t done = 0;
    for (size_t at = text.find(literal_); at != std::string::npos; at = text.find(literal_, done)) {
      out.append(text, done, at - done).append(content_);
      done = at + literal_.size();
    }
    text = out.append(text, done);
  }
  std::string literal_, content_;
  std::optional<Pattern> pattern_;
};

class Prepend final : public Normalizer {
 public:
  explicit Prepend(std::string prefix) : prefix_(std::move(prefix)) {}
  void apply(std::string& text) const override {
    if (!text.empty()) text.insert(0, prefix_);
  }

 private:
  std::string prefix_;
};

class Letters final : public Normalizer {
 public:
  void apply(std::string& text) const override { text = bytes_to_letters(text); }
};

struct BertOptions {
  bool clean, chinese, accents, lower;
};
class Bert final : public Normalizer {
 public:
  explicit Bert(BertOptions options) : options_(options) {}
  void apply(std::string& text) const override {
    if (options_.clean || options_.chinese) clean(text);
    if (options_.accents && !is_ascii(text)) {
      text = normal_form(Form::nfd, text);
      drop(text, kBertAccent);
    }
    if (options_.lower) text = lowercase(text);
  }

 private:
  void clean(std::string& text) const {
    const Unicode& unicode = Unicode::table();
    std::string out;
    for (const char *at = text.data(), *end = at + text.size(); at < end;) {
      const char* begin = at;
      const uint32_t bits = unicode.bits(next_char(at));
      if (options_.clean && (bits & kControl)) continue;
      const bool space = options_.clean && (bits & kSpace);
      const bool apart = options_.chinese && (bits & kChinese);
      if (apart) out += ' ';
      space ? out.append(" ") : out.append(begin, at);
      if (apart) out += ' ';
    }
    text = std::move(out);
  }
  BertOptions options_;
};

class Precompiled final : public Normalizer {
 public:
  explicit Precompiled(Charsmap map) : map_(std::move(map)) {}
  void apply(std::string& text) const override { text = map_.by_grapheme(text); }

 private:
  Charsmap map_;
};

class Sequence final : public Normalizer {
 public:
  explicit Sequence(std::vector<Made> steps) : steps_(std::move(steps)) {}
  void apply(std::string& text) const override {
    for (const Made& step : steps_) step->apply(text);
  }
  bool leaves(std::string_view text) const override {
    return std::all_of(steps_.begin(), steps_.end(), [&](const Made& step) { return step->leaves(text); });
  }
  bool keeps_cuts() const override {
    return std::all_of(steps_.begin(), steps_.end(), [](const Made& step) { return step->keeps_cuts(); });
  }
  bool drops_start(std::string_view text) const override {
    std::string now(text);
    for (const Made& step : steps_) {
      if (step->drops_start(now)) return true;
      step->apply(now);
    }
    return false;
  }

 private:
  std::vector<Made> steps_;
};

const StepRow<Made> kRows[] = {
    {"NFC", make_form<Form::nfc>},
    {"NFD", make_form<Form::nfd>},
    {"NFKC", make_form<Form::nfkc>},
    {"NFKD", make_form<Form::nfkd>},
    {"Lowercase", [](const Json&) -> Made { return std::make_unique<Lowercase>(); }},
    {"StripAccents", [](const Json&) -> Made { return std::make_unique<StripAccents>(); }},
    {"Strip",
     [](const Json& part) -> Made {
       return std::make_unique<Strip>(flag_of(part, "strip_left", true), flag_of(part, "strip_right", true));
     }},
    {"Replace",
     [](const Json& part) -> Made {
       return std::make_unique<Replace>(pattern_of(part), text_of(part, "content"));
     }},
    {"Prepend", [](const Json& part) -> Made { return std::make_unique<Prepend>(text_of(part, "prepend")); }},
    {"ByteLevel", [](const Json&) -> Made { return std::make_unique<Letters>(); }},
    {"BertNormalizer",
     [](const Json& part) -> Made {
       const bool lower = flag_of(part, "lowercase", true);
       return std::make_unique<Bert>(BertOptions{.clean = flag_of(part, "clean_text", true),
                                                 .chinese = flag_of(part, "handle_chinese_chars", true),
                                                 .accents = flag_of(part, "strip_accents", lower),
                                                 .lower = lower});
     }},
    {"Precompiled",
     [](const Json& part) -> Made {
       return std::make_unique<Precompiled>(Charsmap::from_base64(text_of(part, "precompiled_charsmap")));
     }},
    {"Sequence",
     [](const Json& part) -> Made {
       std::vector<Made> steps;
       for (const Json& step : member(part, "normalizers")) steps.push_back(make_normalizer(step));
       return std::make_unique<Sequence>(std::move(steps));
     }},
};

}  // namespace

std::unique_ptr<Normalizer> make_python_nfc() { return std::make_unique<Forms>(Form::nfc_newer); }

bool Normalizer::drops_start(std::string_view text) const {
  if (text.empty()) return false;
  const char* at = text.data();
  next_char(at);
  std::string first(text.data(), at);
  apply(first);
  return first.empty();
}

std::unique_ptr<Normalizer> make_normalizer(const nlohmann::json& part) {
  return make_step<Made>("normalizer", part, kRows);
}

}  // namespace lockstep::text
