// The decoders of tokenizer.json: each turns a list of tokens into another; what comes out is joined.
#include <optional>

#include "lockstep/text/byte_level.h"
#include "lockstep/text/json_part.h"
#include "lockstep/text/pattern.h"
#include "lockstep/text/steps.h"
#include "lockstep/text/utf8.h"

namespace lockstep::text {
namespace {

using Made = std::unique_ptr<DecodeStep>;
using Tokens = std::vector<std::string>;

std::string joined(const Tokens& tokens) {
  std::string out;
  for (const std::string& token : tokens) out += token;
  return out;
}

std::string replaced(const std::string& text, std::string_view from, std::string_view to) {
  if (from.empty()) return text;
  std::string out;
  size_t done = 0;
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, done)) {
    out.append(text, done, at - done).append(to);
    done = at + from.size();
  }
  return out.append(text, done);
}

class ByteLevel final : public DecodeStep {
 public:
  void apply(Tokens& tokens) const override {
    std::string bytes, all, store;
    for (const std::string& token : tokens) all += letters_to_bytes(token, bytes) ? bytes : token;
    tokens = {std::string(whole_utf8(all, store))};
  }
};

// <0xE2>, or -1.
int byte_of(const std::string& token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return -1;
  int value = 0;
  for (const char c : {token[3], token[4]}) {
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                             : -1;
    if (digit < 0) return -1;
    value = value * 16 + digit;
  }
  return value;
}

class ByteFallback final : public DecodeStep {
 public:
  void apply(Tokens& tokens) const override {
    Tokens out;
    std::string bytes;
    const auto flush = [&] {
      if (bytes.empty()) return;
      if (whole_prefix(bytes) == bytes.size()) {
        out.push_back(bytes);
      } else {
        out.insert(out.end(), bytes.size(), std::string(kReplacement));
      }
      bytes.clear();
    };
    for (const std::string& token : tokens) {
      if (const int byte = byte_of(token); byte >= 0) {
        bytes += static_cast<char>(byte);
        continue;
      }
      flush();
      out.push_back(token);
    }
    flush();
    tokens = std::move(out);
  }
};

class Fuse final : public DecodeStep {
 public:
  void apply(Tokens& tokens) const override { tokens = {joined(tokens)}; }
};

class Strip final : public DecodeStep {
 public:
  Strip(std::string content, int64_t start, int64_t stop)
      : content_(std::move(content)), start_(start), stop_(stop) {}
  void apply(Tokens& tokens) const override {
    for (std::string& token : tokens) {
      std::string_view left = token;
      for (int64_t i = 0; i < start_ && left.starts_with(content_); ++i) left.remove_prefix(content_.size());
      for (int64_t i = 0; i < stop_ && left.ends_with(content_); ++i) left.remove_suffix(content_.size());
      token = std::string(left);
    }
  }

 private:
  std::string content_;
  int64_t start_, stop_;
};

class Replace final : public DecodeStep {
 public:
  Replace(const PatternText& pattern, std::string content)
      : literal_(pattern.text), content_(std::move(content)) {
    // Nothing is found before each character and at the end, as by a regex.
    if (pattern.is_regex || literal_.empty()) pattern_.emplace(pattern.text, Engine::oniguruma);
  }
  void apply(Tokens& tokens) const override {
    for (std::string& token : tokens)
      token = pattern_ ? by_pattern(token) : replaced(token, literal_, content_);
  }

 private:
  std::string by_pattern(const std::string& token) const {
    std::string out;
    size_t done = 0;
    pattern_->each_match(token, [&](size_t begin, size_t end) {
      out.append(token, done, begin - done).append(content_);
      done = end;
    });
    return out.append(token, done);
  }
  std::string literal_, content_;
  std::optional<Pattern> pattern_;
};

class Metaspace final : public DecodeStep {
 public:
  Metaspace(std::string mark, bool prepends) : mark_(std::move(mark)), prepends_(prepends) {}
  void apply(Tokens& tokens) const override {
    for (size_t i = 0; i < tokens.size(); ++i)
      tokens[i] = replaced(tokens[i], mark_, i == 0 && prepends_ ? "" : " ");
  }

 private:
  std::string mark_;
  bool prepends_;
};

// English before it was cut: "do n't" is "don't" again.
std::string cleaned(std::string text) {
  constexpr std::pair<std::string_view, std::string_view> kRules[] = {
      {" .", "."},   {" ?", "?"},           {" !", "!"},   {" ,", ","},     {" ' ", "'"},   {" n't", "n't"},
      {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  for (const auto& [from, to] : kRules) text = replaced(text, from, to);
  return text;
}

class WordPiece final : public DecodeStep {
 public:
  WordPiece(std::string prefix, bool clean) : prefix_(std::move(prefix)), clean_(clean) {}
  void apply(Tokens& tokens) const override {
    for (size_t i = 0; i < tokens.size(); ++i) {
      std::string& token = tokens[i];
      if (i > 0) token = token.starts_with(prefix_) ? token.substr(prefix_.size()) : " " + token;
      if (clean_) token = cleaned(token);
    }
  }

 private:
  std::string prefix_;
  bool clean_;
};

class BpeSuffix final : public DecodeStep {
 public:
  explicit BpeSuffix(std::string suffix) : suffix_(std::move(suffix)) {}
  void apply(Tokens& tokens) const override {
    for (size_t i = 0; i < tokens.size(); ++i)
      tokens[i] = replaced(tokens[i], suffix_, i + 1 == tokens.size() ? "" : " ");
  }

 private:
  std::string suffix_;
};

class Ctc final : public DecodeStep {
 public:
  Ctc(std::string pad, std::string delimiter, bool clean)
      : pad_(std::move(pad)), delimiter_(std::move(delimiter)), clean_(clean) {}
  void apply(Tokens& tokens) const override {
    Tokens out;
    const std::string* last = nullptr;
    for (const std::string& token : tokens) {
      if (last != nullptr && *last == token) continue;
      last = &token;
      std::string text = replaced(token, pad_, "");
      if (clean_) text = replaced(cleaned(text), delimiter_, " ");
      if (!text.empty()) out.push_back(std::move(text));
    }
    tokens = std::move(out);
  }

 private:
  std::string pad_, delimiter_;
  bool clean_;
};

class Sequence final : public DecodeStep {
 public:
  explicit Sequence(std::vector<Made> steps) : steps_(std::move(steps)) {}
  void apply(Tokens& tokens) const override {
    for (const Made& step : steps_) step->apply(tokens);
  }

 private:
  std::vector<Made> steps_;
};

int64_t number_of(const Json& part, const char* key) {
  const Json& value = member(part, key);
  if (!value.is_number_integer()) refuse(fmt::format("\"{}\" is no integer", key));
  return value.get<int64_t>();
}

bool prepends(const Json& part) {
  if (!is_set(part, "prepend_scheme")) return flag_of(part, "add_prefix_space", true);
  return text_of(part, "prepend_scheme") != "never";
}

const StepRow<Made> kRows[] = {
    {"ByteLevel", [](const Json&) -> Made { return std::make_unique<ByteLevel>(); }},
    {"ByteFallback", [](const Json&) -> Made { return std::make_unique<ByteFallback>(); }},
    {"Fuse", [](const Json&) -> Made { return std::make_unique<Fuse>(); }},
    {"Strip",
     [](const Json& part) -> Made {
       return std::make_unique<Strip>(text_of(part, "content"), number_of(part, "start"),
                                      number_of(part, "stop"));
     }},
    {"Replace",
     [](const Json& part) -> Made {
       return std::make_unique<Replace>(pattern_of(part), text_of(part, "content"));
     }},
    {"Metaspace",
     [](const Json& part) -> Made {
       return std::make_unique<Metaspace>(text_of(part, "replacement"), prepends(part));
     }},
    {"WordPiece",
     [](const Json& part) -> Made {
       return std::make_unique<WordPiece>(text_of(part, "prefix"), flag_of(part, "cleanup", true));
     }},
    {"BPEDecoder",
     [](const Json& part) -> Made { return std::make_unique<BpeSuffix>(text_of(part, "suffix")); }},
    {"CTC",
     [](const Json& part) -> Made {
       return std::make_unique<Ctc>(text_of(part, "pad_token"), text_of(part, "word_delimiter_token"),
                                    flag_of(part, "cleanup", true));
     }},
    {"Sequence",
     [](const Json& part) -> Made {
       std::vector<Made> steps;
       for (const Json& step : member(part, "decoders")) steps.push_back(make_decode_step(step));
       return std::make_unique<Sequence>(std::move(steps));
     }},
};

}  // namespace

std::unique_ptr<DecodeStep> make_decode_step(const nlohmann::json& part) {
  return make_step<Made>("decoder", part, kRows);
}

}  // namespace lockstep::text
