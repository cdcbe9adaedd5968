// SentencePiece's .model files: their normalizer, BPE or Unigram over whole sentences, and back.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <map>
#include <unordered_map>

#include "lockstep/base/hash.h"
#include "lockstep/base/text.h"
#include "lockstep/text/charsmap.h"
#include "lockstep/text/fault.h"
#include "lockstep/text/kinds.h"
#include "lockstep/text/model.h"
#include "lockstep/text/sentencepiece_proto.h"
#include "lockstep/text/unigram.h"
#include "lockstep/text/utf8.h"

namespace lockstep::text {
namespace {

using Proto = SentencePieceProto;
using Type = Proto::Type;
constexpr std::string_view kMark = "\xE2\x96\x81";  // ▁

// Pieces joined by their scores. Characters that occur in pieces without being one have ids behind the
// vocabulary.
class ScoredBpe {
 public:
  ScoredBpe(const Proto& proto, const Vocabulary& pieces);
  // Appends ids; -1 for a character without a piece.
  void encode(std::string_view text, Workspace& space, std::vector<int32_t>& out) const;

 private:
  int32_t symbol(std::string_view text) const {
    const auto found = symbols_.find(std::string(text));
    return found == symbols_.end() ? -1 : found->second;
  }

  std::unordered_map<std::string, int32_t> symbols_;  // pieces, and characters of pieces
  PairTable pairs_;
  int32_t vocab_ = 0;
  bool apart_ = true;  // ▁ joins only what stands behind it, so words are encoded by themselves
};

ScoredBpe::ScoredBpe(const Proto& proto, const Vocabulary& pieces)
    : vocab_(static_cast<int32_t>(pieces.size())) {
  const auto joins = [](const Proto::Piece& piece) {
    return piece.type == Type::normal || piece.type == Type::user_defined || piece.type == Type::unused;
  };
  std::map<float, uint32_t, std::greater<>> ranks;  // the highest score first
  int32_t next = vocab_;
  for (size_t i = 0; i < proto.pieces.size(); ++i) {
    const Proto::Piece& piece = proto.pieces[i];
    if (!joins(piece)) continue;
    symbols_[piece.text] = static_cast<int32_t>(i);
    ranks[piece.score] = 0;
  }
  uint32_t rank = 0;
  for (auto& [score, value] : ranks) value = rank++;
  for (const Proto::Piece& piece : proto.pieces) {
    if (!joins(piece)) continue;
    for (size_t at = 0; at < piece.text.size();) {
      const auto size = static_cast<size_t>(length_of_char(piece.text[at]));
      if (symbols_.try_emplace(piece.text.substr(at, size), next).second) ++next;
      at += size;
    }
  }
  for (size_t i = 0; i < proto.pieces.size(); ++i) {
    const Proto::Piece& piece = proto.pieces[i];
    if (!joins(piece)) continue;
    for (size_t cut = 1; cut < piece.text.size(); ++cut) {
      if (continues_char(piece.text[cut])) continue;
      const std::string_view text = piece.text;
      const int32_t left = symbol(text.substr(0, cut)), right = symbol(text.substr(cut));
      if (left >= 0 && right >= 0) pairs_.add(left, right, ranks[piece.score], static_cast<int32_t>(i));
    }
    for (size_t at = piece.text.find(kMark, 1); at != std::string::npos; at = piece.text.find(kMark, at + 1))
      apart_ = apart_ && at >= 3 && piece.text.compare(at - 3, 3, kMark) == 0;
  }
}

void ScoredBpe::encode(std::string_view text, Workspace& space, std::vector<int32_t>& out) const {
  for (size_t at = 0; at < text.size();) {
    size_t end = text.size();
    if (apart_) {
      end = at;
      while (text.compare(end, kMark.size(), kMark) == 0) end += kMark.size();
      end = std::min(text.find(kMark, end), text.size());
    }
    const std::string_view part = text.substr(at, end - at);
    if (!space.cache.find(part, text.size() - at, out)) {
      std::vector<int32_t>& tokens = space.tokens;
      tokens.clear();
      for (size_t i = 0; i < part.size();) {
        const auto size = static_cast<size_t>(length_of_char(part[i]));
        const int32_t one = symbol(part.substr(i, size));
        tokens.push_back(one >= 0 ? one : INT32_MAX);
        i += size;
      }
      merge_pairs(pairs_, tokens, space.merge);
      const size_t first = out.size();
      for (const int32_t token : tokens) {
        if (token >= vocab_) {
          out.push_back(-1);
        } else {
          out.push_back(token);
        }
      }
      space.cache.keep(part, std::span(out).subspan(first));
    }
    at = end;
  }
}

class SentencePiece final : public Tokenizer {
 public:
  explicit SentencePiece(Proto proto);
  int64_t vocab() const override { return pieces_.size(); }
  std::unique_ptr<Encoder> encoder() const override;
  std::string decode(std::span<const int32_t> ids, bool skip_special) const override;
  std::optional<int32_t> id_of(std::string_view token) const override { return pieces_.find(token); }
  const std::vector<SpecialToken>& special_tokens() const override { return specials_; }
  std::optional<int32_t> begin_token() const override { return known(proto_.begin); }
  std::optional<int32_t> end_token() const override { return known(proto_.end); }
  std::optional<int32_t> pad_token() const override { return known(proto_.pad); }
  void special_ids_around(std::vector<int32_t>& before, std::vector<int32_t>& behind) const override {
    before.clear(), behind.clear();
  }
  uint64_t hash() const override { return hash_; }
  std::string describe() const override {
    return fmt::format("{} of {} tokens (SentencePiece)", bpe_ ? "BPE" : "Unigram", pieces_.size());
  }
  bool cuts_between_words() const override { return false; }

 private:
  friend class SentencePieceEncoder;
  std::optional<int32_t> known(int32_t id) const {
    return id >= 0 && id < pieces_.size() ? std::optional(id) : std::nullopt;
  }
  Type type(int32_t id) const { return proto_.pieces[static_cast<size_t>(id)].type; }
  void make_model();
  std::string normalized(std::string_view text) const;
  bool next_part(std::string_view& text, std::string_view& part) const;
  size_t user_defined_size(std::string_view text) const;

  Proto proto_;
  Vocabulary pieces_;
  Charsmap map_;
  std::unique_ptr<ScoredBpe> bpe_;
  std::unique_ptr<UnigramModel> unigram_;
  std::vector<std::pair<std::string, int32_t>> user_defined_;  // the longest first
  std::vector<SpecialToken> specials_;
  std::vector<int32_t> bytes_;
  uint64_t hash_ = 0;
};

class SentencePieceEncoder final : public Encoder {
 public:
  explicit SentencePieceEncoder(const SentencePiece& model) : m_(model) {}
  void encode(std::string_view bytes, std::vector<int32_t>& out, const EncodeOptions&) override {
    const std::string_view whole = whole_utf8(bytes, repaired_);
    const std::string text = m_.normalized(whole);
    if (m_.unigram_) return m_.unigram_->encode(text, text.size(), space_, out);
    size_t plain = 0;  // where the text begins that is no user's piece
    bool unknown_before = false;
    for (size_t at = 0; at <= text.size();) {
      const size_t size = at < text.size() ? m_.user_defined_size(std::string_view(text).substr(at)) : 0;
      if (at < text.size() && size == 0) {
        at += static_cast<size_t>(length_of_char(text[at]));
        continue;
      }
      encode_plain(std::string_view(text).substr(plain, at - plain), unknown_before, out);
      if (at == text.size()) break;
      out.push_back(m_.pieces_.id(text.substr(at, size)));
      unknown_before = false;
      at = plain = at + size;
    }
  }

 private:
  void encode_plain(std::string_view text, bool& unknown_before, std::vector<int32_t>& out) {
    ids_.clear();
    m_.bpe_->encode(text, space_, ids_);
    if (std::find(ids_.begin(), ids_.end(), -1) == ids_.end()) {
      if (!ids_.empty()) unknown_before = false;
      out.insert(out.end(), ids_.begin(), ids_.end());
      return;
    }
    size_t at = 0;
    for (const int32_t id : ids_) {
      const auto size = id < 0 ? static_cast<size_t>(length_of_char(text[at])) : m_.pieces_.token(id)->size();
      if (id >= 0) {
        out.push_back(id);
      } else if (m_.proto_.byte_fallback) {
        for (const char byte : text.substr(at, size))
          out.push_back(m_.bytes_[static_cast<unsigned char>(byte)]);
      } else if (!unknown_before) {
        out.push_back(m_.proto_.unknown);
      }
      unknown_before = id < 0;
      at += size;
    }
  }

  const SentencePiece& m_;
  Workspace space_;
  std::string repaired_;
  std::vector<int32_t> ids_;
};

SentencePiece::SentencePiece(Proto proto) : proto_(std::move(proto)) {
  if (proto_.kind != Proto::Kind::bpe && proto_.kind != Proto::Kind::unigram)
    throw Fault{243, "its model is of words or characters; BPE and Unigram are supported"};
  if (proto_.suffix_space) throw Fault{243, "treat_whitespace_as_suffix is not supported"};
  if (!proto_.denormalizer.empty()) throw Fault{243, "a denormalizer is not supported"};
  bytes_.assign(256, -1);
  bool unknown = false;
  for (size_t i = 0; i < proto_.pieces.size(); ++i) {
    const Proto::Piece& piece = proto_.pieces[i];
    const auto id = static_cast<int32_t>(i);
    if (piece.text.empty() || whole_prefix(piece.text) != piece.text.size())
      throw Fault{241, fmt::format("piece {} is empty or no UTF-8", i)};
    if (pieces_.find(piece.text))
      throw Fault{241, fmt::format("the piece {} is there twice", base::quoted(piece.text))};
    if (piece.type == Type::unused && proto_.kind == Proto::Kind::bpe)
      throw Fault{243, fmt::format("it has unused pieces such as {}, which are not supported in BPE",
                                   base::quoted(piece.text))};
    pieces_.add(piece.text, id);
    if (piece.type == Type::unknown) proto_.unknown = id, unknown = true;
    if (piece.type == Type::control) specials_.push_back({piece.text, id});
    if (piece.type == Type::user_defined) user_defined_.emplace_back(piece.text, id);
  }
  if (!unknown) throw Fault{241, "it has no piece for what is unknown"};
  for (int byte = 0; proto_.byte_fallback && byte < 256; ++byte) {
    const std::string name = fmt::format("<0x{:02X}>", byte);
    bytes_[static_cast<size_t>(byte)] = pieces_.id(name);
    if (!pieces_.find(name))
      throw Fault{241, fmt::format("it falls back to bytes and has no piece {}", name)};
  }
  std::stable_sort(user_defined_.begin(), user_defined_.end(),
                   [](const auto& a, const auto& b) { return a.first.size() > b.first.size(); });
  map_ = Charsmap::from_blob(proto_.charsmap);
  make_model();
}

void SentencePiece::make_model() {
  hash_ = base::hash_combine(pieces_.hash(), base::hash_text(proto_.charsmap));
  hash_ = base::hash_combine(hash_, static_cast<uint64_t>(proto_.kind) | proto_.byte_fallback << 4 |
                                        proto_.dummy_prefix << 5 | proto_.remove_extra_spaces << 6 |
                                        proto_.escape_spaces << 7);
  for (const Proto::Piece& piece : proto_.pieces)
    hash_ = base::hash_combine(
        hash_, static_cast<uint64_t>(piece.type) ^ std::bit_cast<uint32_t>(piece.score) * 16ull);
  if (proto_.kind == Proto::Kind::bpe) {
    bpe_ = std::make_unique<ScoredBpe>(proto_, pieces_);
    return;
  }
  UnigramOptions options{.scores = {}, .unknown = proto_.unknown, .byte_fallback = proto_.byte_fallback};
  options.precision = Precision::single_;
  float least = std::numeric_limits<float>::max();
  for (const Proto::Piece& piece : proto_.pieces) {
    if (piece.type == Type::normal) least = std::min(least, piece.score);
  }
  Vocabulary pieces;
  for (size_t i = 0; i < proto_.pieces.size(); ++i) {
    const Proto::Piece& piece = proto_.pieces[i];
    pieces.add(piece.text, static_cast<int32_t>(i));
    const bool user = piece.type == Type::user_defined;
    options.usable.push_back(user || piece.type == Type::normal);
    // One long piece of the user's before several short ones, and any before what is learned.
    const auto bonus = static_cast<float>(0.1 * static_cast<double>(piece.text.size() - 1));
    options.scores.push_back(user ? bonus : piece.score);
  }
  options.least_score = least;
  unigram_ = std::make_unique<UnigramModel>(std::move(pieces), std::move(options));
}

size_t SentencePiece::user_defined_size(std::string_view text) const {
  for (const auto& [piece, id] : user_defined_) {
    if (text.starts_with(piece)) return piece.size();
  }
  return 0;
}

// Takes what is replaced in one step off the text; `part` is what takes its place.
bool SentencePiece::next_part(std::string_view& text, std::string_view& part) const {
  if (text.empty()) return false;
  if (const size_t size = user_defined_size(text)) {
    part = text.substr(0, size);
    text.remove_prefix(size);
    return true;
  }
  if (const auto found = map_.find(text, Charsmap::Length::longest)) {
    part = found->by;
    text.remove_prefix(found->size);
    return true;
  }
  part = text.substr(0, static_cast<size_t>(length_of_char(text[0])));
  text.remove_prefix(part.size());
  return true;
}

std::string SentencePiece::normalized(std::string_view text) const {
  std::string out;
  if (text.empty()) return out;
  std::string_view part;
  if (proto_.remove_extra_spaces) {
    for (std::string_view rest = text; next_part(rest, part) && part == " ";) text = rest;
    if (text.empty()) return out;
  }
  const std::string_view space = proto_.escape_spaces ? kMark : " ";
  if (proto_.dummy_prefix) out += space;
  bool after_space = proto_.remove_extra_spaces;
  while (next_part(text, part)) {
    while (after_space && part.starts_with(' ')) part.remove_prefix(1);
    if (!part.empty()) {
      for (const char byte : part) {
        if (byte == ' ')
          out += space;
        else
          out += byte;
      }
      after_space = part.ends_with(' ');
    }
    if (!proto_.remove_extra_spaces) after_space = false;
  }
  while (proto_.remove_extra_spaces && out.ends_with(space)) out.resize(out.size() - space.size());
  return out;
}

std::unique_ptr<Encoder> SentencePiece::encoder() const {
  return std::make_unique<SentencePieceEncoder>(*this);
}

void append_bytes(std::string& bytes, std::string& out) {
  std::string_view left = bytes;
  while (!left.empty()) {
    const size_t whole = whole_prefix(left);
    out += left.substr(0, whole);
    left.remove_prefix(whole);
    if (left.empty()) break;
    out += kReplacement;
    left.remove_prefix(1);
  }
  bytes.clear();
}

std::string SentencePiece::decode(std::span<const int32_t> ids, bool) const {
  std::string out, bytes;
  bool at_start = true, took_space = false;
  for (const int32_t id : ids) {
    const std::string* piece = pieces_.token(id);
    if (piece == nullptr) continue;
    if (type(id) == Type::byte) {
      bytes += static_cast<char>(std::stoi(piece->substr(3, 2), nullptr, 16));
      continue;
    }
    append_bytes(bytes, out);
    if (took_space || !out.empty()) at_start = false;
    took_space = false;
    if (type(id) == Type::control) continue;
    if (type(id) == Type::unknown) {
      out += proto_.unknown_surface;
      continue;
    }
    std::string_view text = *piece;
    if (at_start && (proto_.dummy_prefix || proto_.remove_extra_spaces) && text.starts_with(kMark)) {
      text.remove_prefix(kMark.size());
      took_space = !proto_.remove_extra_spaces;
    }
    for (size_t i = 0; i < text.size();) {
      const bool mark = text.compare(i, kMark.size(), kMark) == 0;
      out += mark ? ' ' : text[i];
      i += mark ? kMark.size() : 1;
    }
  }
  append_bytes(bytes, out);
  return out;
}

std::unique_ptr<Tokenizer> open(const std::string&, std::string_view bytes) {
  return std::make_unique<SentencePiece>(read_sentencepiece(bytes));
}

// Field 1, a message: the first piece.
bool is(std::string_view begin) { return begin.size() > 3 && begin[0] == '\x0A' && begin[2] == '\x0A'; }

}  // namespace

const FileKind kSentencePiece = {"SentencePiece", "*.model*", is, open};

}  // namespace lockstep::text
