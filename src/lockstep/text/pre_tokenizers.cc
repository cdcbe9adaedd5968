// The pre-tokenizers of tokenizer.json.
#include <algorithm>
#include <functional>
#include <optional>

#include "lockstep/text/byte_level.h"
#include "lockstep/text/json_part.h"
#include "lockstep/text/pattern.h"
#include "lockstep/text/steps.h"
#include "lockstep/text/utf8.h"

namespace lockstep::text {
namespace {

using Made = std::unique_ptr<PreTokenizer>;

// A stretch of a text: one that a pattern matches, or one between two that do.
struct Stretch {
  size_t begin, end;
  bool match;
};
using Stretches = std::vector<Stretch>;

// What becomes of the stretches that match.
enum class Behaviour : unsigned char {
  removed,
  isolated,
  merged_with_previous,
  merged_with_next,
  contiguous
};

Behaviour behaviour_of(const Json& part, const char* key, Behaviour otherwise) {
  if (!is_set(part, key)) return otherwise;
  const std::string name = text_of(part, key);
  constexpr const char* kNames[] = {"Removed", "Isolated", "MergedWithPrevious", "MergedWithNext",
                                    "Contiguous"};
  for (size_t i = 0; i < std::size(kNames); ++i) {
    if (name == kNames[i]) return static_cast<Behaviour>(i);
  }
  refuse_kind("behaviour", name, "Removed, Isolated, MergedWithPrevious, MergedWithNext, Contiguous");
}

// A match joins the neighbour that came before it in this order, unless that is a match too.
Stretches merged(const Stretches& all) {
  Stretches out;
  bool after_match = false;
  for (const Stretch& one : all) {
    if (one.match && !after_match && !out.empty()) {
      out.back().begin = std::min(out.back().begin, one.begin);
      out.back().end = std::max(out.back().end, one.end);
    } else {
      out.push_back(one);
    }
    after_match = one.match;
  }
  return out;
}

Stretches resolved(Stretches all, Behaviour behaviour) {
  switch (behaviour) {
    case Behaviour::removed:
      std::erase_if(all, [](const Stretch& one) { return one.match; });
      return all;
    case Behaviour::isolated:
      return all;
    case Behaviour::merged_with_previous:
      return merged(all);
    case Behaviour::merged_with_next: {
      std::reverse(all.begin(), all.end());
      Stretches out = merged(all);
      std::reverse(out.begin(), out.end());
      return out;
    }
    case Behaviour::contiguous: {
      Stretches out;
      for (const Stretch& one : all) {
        if (!out.empty() && out.back().match == one.match) {
          out.back().end = one.end;
        } else {
          out.push_back(one);
        }
      }
      return out;
    }
  }
  return all;
}

using Cut = std::function<Stretches(std::string_view text)>;

void cut_pieces(std::vector<Piece>& pieces, Behaviour behaviour, const Cut& cut) {
  std::vector<Piece> out;
  for (const Piece& piece : pieces) {
    for (const Stretch& one : resolved(cut(piece.text), behaviour)) {
      if (one.begin == one.end) continue;
      out.push_back({.text = piece.text.substr(one.begin, one.end - one.begin),
                     .at_start = piece.at_start && one.begin <= piece.inserted,
                     .inserted = piece.inserted - std::min(piece.inserted, one.begin)});
    }
  }
  pieces = std::move(out);
}

// Characters with one of these bits match, each by itself.
Stretches cut_by_bits(std::string_view text, uint32_t mask) {
  const Unicode& unicode = Unicode::table();
  Stretches out;
  size_t done = 0;
  for (const char *at = text.data(), *end = at + text.size(); at < end;) {
    const auto begin = static_cast<size_t>(at - text.data());
    if (!(unicode.bits(next_char(at)) & mask)) continue;
    if (done < begin) out.push_back({done, begin, false});
    done = static_cast<size_t>(at - text.data());
    out.push_back({begin, done, true});
  }
  if (done < text.size()) out.push_back({done, text.size(), false});
  return out;
}

Stretches cut_by_literal(std::string_view text, std::string_view literal) {
  Stretches out;
  size_t done = 0;
  for (size_t at = text.find(literal); !literal.empty() && at != std::string_view::npos;
       at = text.find(literal, done)) {
    if (done < at) out.push_back({done, at, false});
    done = at + literal.size();
    out.push_back({at, done, true});
  }
  if (done < text.size()) out.push_back({done, text.size(), false});
  return out;
}

Stretches cut_by_pattern(std::string_view text, const Pattern& pattern) {
  Stretches out;
  size_t done = 0;
  pattern.each_match(text, [&](size_t begin, size_t end) {
    if (done != begin) out.push_back({done, begin, false});
    out.push_back({begin, end, true});
    done = end;
  });
  if (done < text.size()) out.push_back({done, text.size(), false});
  return out;
}

Stretches cut_by_scan(std::string_view text, Scan scan) {
  const Unicode& unicode = Unicode::table();
  Stretches out;
  const char *begin = text.data(), *end = begin + text.size();
  for (const char* at = begin; at < end;) {
    const char* next = scan(unicode, at, end);
    out.push_back({static_cast<size_t>(at - begin), static_cast<size_t>(next - begin), true});
    at = next;
  }
  return out;
}

class ByBits final : public PreTokenizer {
 public:
  ByBits(uint32_t mask, Behaviour behaviour) : mask_(mask), behaviour_(behaviour) {}
  void split(std::vector<Piece>& pieces) const override {
    cut_pieces(pieces, behaviour_, [&](std::string_view text) { return cut_by_bits(text, mask_); });
  }

 private:
  uint32_t mask_;
  Behaviour behaviour_;
};

class Split final : public PreTokenizer {
 public:
  Split(PatternText pattern, Behaviour behaviour, bool invert)
      : text_(std::move(pattern)), behaviour_(behaviour), invert_(invert) {
    if (!text_.is_regex && !text_.text.empty()) return;
    scan_ = find_scan(text_.text);
    if (scan_ == nullptr) pattern_.emplace(text_.text, Engine::oniguruma);
  }
  void split(std::vector<Piece>& pieces) const override {
    cut_pieces(pieces, behaviour_, [&](std::string_view text) {
      Stretches all = scan_ != nullptr ? cut_by_scan(text, scan_)
                      : pattern_       ? cut_by_pattern(text, *pattern_)
                                       : cut_by_literal(text, text_.text);
      for (Stretch& one : all) one.match = one.match != invert_;
      return all;
    });
  }
  // All of the text matches, so what is kept alone is kept either way.
  bool isolates() const {
    return behaviour_ == Behaviour::isolated || (behaviour_ == Behaviour::removed && invert_);
  }
  Scan scan() const override { return isolates() ? scan_ : nullptr; }
  std::string_view pattern() const override {
    return behaviour_ == Behaviour::isolated && text_.is_regex ? std::string_view(text_.text)
                                                               : std::string_view();
  }

 private:
  PatternText text_;
  Behaviour behaviour_;
  bool invert_;
  Scan scan_ = nullptr;
  std::optional<Pattern> pattern_;
};

class ByteLevel final : public PreTokenizer {
 public:
  ByteLevel(bool prefix_space, bool use_regex) : prefix_space_(prefix_space), use_regex_(use_regex) {}
  void split(std::vector<Piece>& pieces) const override {
    for (Piece& piece : pieces) {
      if (prefix_space_ && !piece.text.starts_with(' ')) {
        piece.text.insert(0, " ");
        ++piece.inserted;
      }
    }
    const Scan gpt2 = find_scan(kGpt2Pattern);
    if (use_regex_)
      cut_pieces(pieces, Behaviour::isolated, [&](std::string_view text) { return cut_by_scan(text, gpt2); });
    for (Piece& piece : pieces) {
      piece.inserted = bytes_to_letters(std::string_view(piece.text).substr(0, piece.inserted)).size();
      piece.text = bytes_to_letters(piece.text);
    }
  }
  Scan scan() const override { return use_regex_ && !prefix_space_ ? find_scan(kGpt2Pattern) : nullptr; }
  bool to_letters() const override { return !prefix_space_; }

 private:
  bool prefix_space_, use_regex_;
};

enum class Scheme : unsigned char { always, first, never };
class Metaspace final : public PreTokenizer {
 public:
  Metaspace(std::string mark, Scheme scheme, bool cut) : mark_(std::move(mark)), scheme_(scheme), cut_(cut) {}
  void split(std::vector<Piece>& pieces) const override {
    for (Piece& piece : pieces) {
      std::string text;
      for (const char byte : piece.text) {
        if (byte == ' ')
          text += mark_;
        else
          text += byte;
      }
      const bool wanted = scheme_ == Scheme::always || (scheme_ == Scheme::first && piece.at_start);
      if (wanted && !text.starts_with(mark_)) {
        text.insert(0, mark_);
        piece.inserted += mark_.size();
      }
      piece.text = std::move(text);
    }
    if (cut_)
      cut_pieces(pieces, Behaviour::merged_with_next,
                 [&](std::string_view text) { return cut_by_literal(text, mark_); });
  }

 private:
  std::string mark_;
  Scheme scheme_;
  bool cut_;
};

// \w+|[^\w\s]+
class Whitespace final : public PreTokenizer {
 public:
  void split(std::vector<Piece>& pieces) const override {
    const Unicode& unicode = Unicode::table();
    cut_pieces(pieces, Behaviour::isolated, [&](std::string_view text) {
      Stretches out;
      uint32_t last = kSpace;
      for (const char *at = text.data(), *end = at + text.size(); at < end;) {
        const auto begin = static_cast<size_t>(at - text.data());
        const uint32_t bits = unicode.bits(next_char(at));
        const uint32_t kind = bits & kRustWord ? kRustWord : bits & kSpace;  // 0: neither word nor space
        const auto behind = static_cast<size_t>(at - text.data());
        if (kind == last && kind != kSpace) {
          out.back().end = behind;
        } else if (kind != kSpace) {
          out.push_back({begin, behind, true});
        }
        last = kind;
      }
      return out;
    });
  }
};

class Sequence final : public PreTokenizer {
 public:
  explicit Sequence(std::vector<Made> steps) : steps_(std::move(steps)) {}
  void split(std::vector<Piece>& pieces) const override {
    for (const Made& step : steps_) step->split(pieces);
  }
  void flatten(std::vector<const PreTokenizer*>& steps) const override {
    for (const Made& step : steps_) step->flatten(steps);
  }

 private:
  std::vector<Made> steps_;
};

Scheme scheme_of(const Json& part) {
  if (!is_set(part, "prepend_scheme"))
    return flag_of(part, "add_prefix_space", true) ? Scheme::always : Scheme::never;
  const std::string name = text_of(part, "prepend_scheme");
  if (name == "always") return Scheme::always;
  if (name == "first") return Scheme::first;
  if (name == "never") return Scheme::never;
  refuse_kind("prepend_scheme", name, "always, first, never");
}

Made sequence_of(std::vector<Made> steps) { return std::make_unique<Sequence>(std::move(steps)); }

Made make_bert(const Json&) {
  std::vector<Made> steps;
  steps.push_back(std::make_unique<ByBits>(kSpace, Behaviour::removed));
  steps.push_back(std::make_unique<ByBits>(kPunctuation, Behaviour::isolated));
  return sequence_of(std::move(steps));
}

const StepRow<Made> kRows[] = {
    {"ByteLevel",
     [](const Json& part) -> Made {
       return std::make_unique<ByteLevel>(flag_of(part, "add_prefix_space", true),
                                          flag_of(part, "use_regex", true));
     }},
    {"Split",
     [](const Json& part) -> Made {
       return std::make_unique<Split>(pattern_of(part), behaviour_of(part, "behavior", Behaviour::isolated),
                                      flag_of(part, "invert", false));
     }},
    {"Whitespace", [](const Json&) -> Made { return std::make_unique<Whitespace>(); }},
    {"WhitespaceSplit",
     [](const Json&) -> Made { return std::make_unique<ByBits>(kSpace, Behaviour::removed); }},
    {"BertPreTokenizer", make_bert},
    {"Digits",
     [](const Json& part) -> Made {
       const bool alone = flag_of(part, "individual_digits", false);
       return std::make_unique<ByBits>(kNumeric, alone ? Behaviour::isolated : Behaviour::contiguous);
     }},
    {"Punctuation",
     [](const Json& part) -> Made {
       return std::make_unique<ByBits>(kPunctuation, behaviour_of(part, "behavior", Behaviour::isolated));
     }},
    {"CharDelimiterSplit",
     [](const Json& part) -> Made {
       return std::make_unique<Split>(PatternText{text_of(part, "delimiter"), false}, Behaviour::removed,
                                      false);
     }},
    {"Metaspace",
     [](const Json& part) -> Made {
       return std::make_unique<Metaspace>(text_of(part, "replacement"), scheme_of(part),
                                          flag_of(part, "split", true));
     }},
    {"Sequence",
     [](const Json& part) -> Made {
       std::vector<Made> steps;
       for (const Json& step : member(part, "pretokenizers")) steps.push_back(make_pre_tokenizer(step));
       return sequence_of(std::move(steps));
     }},
};

}  // namespace

std::unique_ptr<PreTokenizer> make_pre_tokenizer(const nlohmann::json& part) {
  return make_step<Made>("pre-tokenizer", part, kRows);
}

}  // namespace lockstep::text
