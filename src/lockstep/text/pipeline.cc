#include "lockstep/text/pipeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "lockstep/base/hash.h"
#include "lockstep/text/bpe_model.h"
#include "lockstep/text/byte_level.h"
#include "lockstep/text/utf8.h"

namespace lockstep::text {
namespace {

constexpr const char* kBegins[] = {
    "<s>", "<|begin_of_text|>", "<bos>", "<｜begin▁of▁sentence｜>", "<|startoftext|>", "[CLS]"};
constexpr const char* kEnds[] = {
    "</s>", "<|end_of_text|>", "<|endoftext|>", "<eos>", "<｜end▁of▁sentence｜>", "<EOT>", "[SEP]"};
constexpr const char* kPads[] = {"<pad>", "[PAD]", "<|finetune_right_pad_id|>", "<|finetune_right_pad|>",
                                 "<｜▁pad▁｜>"};

class Pipeline final : public Tokenizer {
 public:
  explicit Pipeline(PipelineParts parts);
  int64_t vocab() const override { return vocab_; }
  std::unique_ptr<Encoder> encoder() const override;
  std::string decode(std::span<const int32_t> ids, bool skip_special) const override;
  std::optional<int32_t> id_of(std::string_view token) const override;
  const std::vector<SpecialToken>& special_tokens() const override { return specials_; }
  std::optional<int32_t> begin_token() const override { return begin_; }
  std::optional<int32_t> end_token() const override { return end_; }
  std::optional<int32_t> pad_token() const override { return pad_; }
  void special_ids_around(std::vector<int32_t>& before, std::vector<int32_t>& behind) const override {
    before = parts_.before;
    behind = parts_.after;
  }
  uint64_t hash() const override { return hash_; }
  std::string describe() const override;
  bool cuts_between_words() const override { return cuts_between_words_; }

 private:
  friend class PipelineEncoder;
  void find_scanner();
  uint64_t make_hash() const;
  template <size_t kCount>
  std::optional<int32_t> find_named(const std::string& name, const char* const (&usual)[kCount]) const;

  PipelineParts parts_;
  TokenFinder raw_, normalized_;  // tokens that are looked for before and after the text is normalized
  struct Shown {
    std::string text;
    bool special;
  };
  std::unordered_map<int32_t, Shown> added_;  // as they read: those that are normalized, normalized
  std::vector<SpecialToken> specials_;
  std::optional<int32_t> begin_, end_, pad_;
  int64_t vocab_ = 0;
  Scan scan_ = nullptr;  // set where bytes_ can do it all
  const BpeModel* bytes_ = nullptr;
  bool cuts_between_words_ = false;
  uint64_t hash_ = 0;
};

// As much as decides what becomes of the first character.
std::string_view beginning_of(std::string_view text) {
  constexpr size_t kEnough = 256;
  if (text.size() <= kEnough) return text;
  size_t end = kEnough;
  while ((static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return text.substr(0, end);
}

class PipelineEncoder final : public Encoder {
 public:
  explicit PipelineEncoder(const Pipeline& pipeline) : p_(pipeline) {}
  void encode(std::string_view bytes, std::vector<int32_t>& out, const EncodeOptions& options) override {
    const std::string_view text = whole_utf8(bytes, repaired_);
    if (options.add_special) out.insert(out.end(), p_.parts_.before.begin(), p_.parts_.before.end());
    sections_.clear();
    p_.raw_.split(text, options.parse_special, sections_);
    for (const Section& section : sections_) {
      if (section.id >= 0) {
        out.push_back(section.id);
      } else {
        encode_section(text.substr(section.begin, section.end - section.begin), section.begin == 0, options,
                       out);
      }
    }
    if (options.add_special) out.insert(out.end(), p_.parts_.after.begin(), p_.parts_.after.end());
  }

 private:
  void encode_section(std::string_view text, bool at_start, const EncodeOptions& options,
                      std::vector<int32_t>& out) {
    if (p_.parts_.normalizer && !p_.parts_.normalizer->leaves(text)) {
      normalized_.assign(text);
      p_.parts_.normalizer->apply(normalized_);
      at_start = at_start && !p_.parts_.normalizer->drops_start(beginning_of(text));
      text = normalized_;
    }
    if (p_.normalized_.empty()) return encode_text(text, at_start, out);
    inner_.clear();
    p_.normalized_.split(text, options.parse_special, inner_);
    for (const Section& section : inner_) {
      if (section.id >= 0) {
        out.push_back(section.id);
      } else {
        encode_text(text.substr(section.begin, section.end - section.begin), at_start && section.begin == 0,
                    out);
      }
    }
  }

  void encode_text(std::string_view text, bool at_start, std::vector<int32_t>& out) {
    if (text.empty()) return;  // some models have a token for nothing
    if (p_.scan_ != nullptr) return encode_bytes(text, out);
    if (!p_.parts_.pre_tokenizer) return p_.parts_.model->encode(text, text.size(), space_, out);
    pieces_.clear();
    pieces_.push_back({.text = std::string(text), .at_start = at_start});
    p_.parts_.pre_tokenizer->split(pieces_);
    for (const Piece& piece : pieces_) {
      if (!piece.text.empty()) p_.parts_.model->encode(piece.text, piece.text.size(), space_, out);
    }
  }

  void encode_bytes(std::string_view text, std::vector<int32_t>& out) {
    const Unicode& unicode = Unicode::table();
    const char *at = text.data(), *end = at + text.size();
    while (at < end) {
      const char* next = p_.scan_(unicode, at, end);
      p_.bytes_->encode_bytes({at, next}, static_cast<size_t>(end - at), space_, out);
      at = next;
    }
  }

  const Pipeline& p_;
  Workspace space_;
  std::string repaired_, normalized_;
  std::vector<Section> sections_, inner_;
  std::vector<Piece> pieces_;
};

Pipeline::Pipeline(PipelineParts parts) : parts_(std::move(parts)) {
  vocab_ = parts_.model->vocabulary().size();
  bool plain = true;  // no token reaches over a space
  for (const AddedToken& token : parts_.added) {
    vocab_ = std::max<int64_t>(vocab_, token.id + 1);
    if (token.special) specials_.push_back({token.content, token.id});
    if (token.single_word || token.lstrip || token.rstrip || token.content.find(' ') != std::string::npos)
      plain = false;
    std::string written = token.content;
    if (token.normalized && parts_.normalizer) parts_.normalizer->apply(written);
    added_[token.id] = {written, token.special};
    if (!parts_.added_in_text) continue;
    (token.normalized ? normalized_ : raw_).add(written, token);
  }
  begin_ = find_named(parts_.begin, kBegins);
  end_ = find_named(parts_.end, kEnds);
  pad_ = find_named(parts_.pad, kPads);
  find_scanner();
  cuts_between_words_ = plain && scan_ != nullptr && (!parts_.normalizer || parts_.normalizer->keeps_cuts());
  hash_ = make_hash();
}

// The whole way in one loop: a scanner, then bytes.
void Pipeline::find_scanner() {
  const auto* bpe = dynamic_cast<const BpeModel*>(parts_.model.get());
  if (bpe == nullptr || !bpe->knows_all_bytes() || !parts_.pre_tokenizer) return;
  std::vector<const PreTokenizer*> steps;
  parts_.pre_tokenizer->flatten(steps);
  if (steps.empty() || !steps.back()->to_letters()) return;
  if (steps.size() == 1) {
    scan_ = steps[0]->scan();
  } else if (steps.back()->scan() == nullptr) {
    if (steps.size() == 2) scan_ = steps[0]->scan();
    const auto matches = [&](size_t i) { return same_pattern(steps[i]->pattern(), kDeepSeekPatterns[i]); };
    if (steps.size() == 4 && matches(0) && matches(1) && matches(2)) scan_ = deepseek_scan();
  }
  if (scan_ != nullptr) bytes_ = bpe;
}

template <size_t kCount>
std::optional<int32_t> Pipeline::find_named(const std::string& name,
                                            const char* const (&usual)[kCount]) const {
  if (!name.empty()) return id_of(name);
  for (const char* one : usual) {
    if (const auto id = id_of(one)) return id;
  }
  return std::nullopt;
}

uint64_t Pipeline::make_hash() const {
  uint64_t hash = base::hash_combine(parts_.steps_hash, parts_.model->vocabulary().hash());
  hash = base::hash_combine(hash, parts_.model->hash());
  for (const AddedToken& token : parts_.added) {
    const uint64_t flags = token.special | token.single_word << 1 | token.lstrip << 2 | token.rstrip << 3 |
                           token.normalized << 4 | static_cast<uint64_t>(token.id) << 8;
    hash = base::hash_combine(base::hash_combine(hash, base::hash_text(token.content)), flags);
  }
  for (const std::vector<int32_t>* ids : {&parts_.before, &parts_.after}) {
    hash = base::hash_combine(hash, ids->size());
    for (const int32_t id : *ids) hash = base::hash_combine(hash, static_cast<uint64_t>(id));
  }
  return hash;
}

std::unique_ptr<Encoder> Pipeline::encoder() const { return std::make_unique<PipelineEncoder>(*this); }

std::optional<int32_t> Pipeline::id_of(std::string_view token) const {
  for (const AddedToken& added : parts_.added) {
    if (added.content == token) return added.id;
  }
  return parts_.model->vocabulary().find(token);
}

std::string Pipeline::decode(std::span<const int32_t> ids, bool skip_special) const {
  std::vector<std::string> tokens;
  std::string out, bytes;
  for (const int32_t id : ids) {
    const auto added = added_.find(id);
    const bool is_added = added != added_.end();
    const std::string* token = is_added ? &added->second.text : parts_.model->vocabulary().token(id);
    if (token == nullptr || (is_added && added->second.special && skip_special)) continue;
    if (parts_.decode_by == DecodeBy::letters) {
      out += !is_added && letters_to_bytes(*token, bytes) ? bytes : *token;
    } else {
      tokens.push_back(*token);
    }
  }
  if (parts_.decode_by == DecodeBy::letters) return out;
  if (parts_.decoder) parts_.decoder->apply(tokens);
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (i > 0 && !parts_.decoder) out += ' ';
    out += tokens[i];
  }
  return out;
}

std::string Pipeline::describe() const {
  return fmt::format("{}{} of {} tokens ({})", scan_ != nullptr ? "byte-level " : "", parts_.model->name(),
                     vocab_, parts_.source);
}

}  // namespace

std::unique_ptr<Tokenizer> make_pipeline(PipelineParts parts) {
  return std::make_unique<Pipeline>(std::move(parts));
}

}  // namespace lockstep::text
