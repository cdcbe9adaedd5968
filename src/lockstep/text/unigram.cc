#include "lockstep/text/unigram.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/base/hash.h"
#include "lockstep/base/text.h"
#include "lockstep/text/utf8.h"

namespace lockstep::text {
namespace {

constexpr double kUnknownPenalty = 10;
constexpr float kLargeSum = 100000;  // SentencePiece 0.2.3: from here on, sums begin at zero again

}  // namespace

UnigramModel::UnigramModel(Vocabulary vocabulary, UnigramOptions options)
    : Model(std::move(vocabulary)), options_(std::move(options)) {
  for (int byte = 0; byte < 256; ++byte) byte_tokens_[byte] = vocabulary_.id(fmt::format("<0x{:02X}>", byte));
  build_trie();
}

// From the sorted tokens, level by level, so that the edges of a node lie together.
void UnigramModel::build_trie() {
  struct Entry {
    std::string_view token;
    int32_t id;
  };
  std::vector<Entry> all;
  for (int64_t id = 0; id < vocabulary_.size(); ++id) {
    const std::string* token = vocabulary_.token(id);
    const bool usable = options_.usable.empty() || options_.usable[static_cast<size_t>(id)];
    if (token != nullptr && !token->empty() && usable && vocabulary_.id(*token) == id)
      all.push_back({*token, static_cast<int32_t>(id)});
  }
  std::sort(all.begin(), all.end(), [](const Entry& a, const Entry& b) { return a.token < b.token; });
  struct Work {
    size_t begin, end, depth;
    uint32_t node;
  };
  nodes_.assign(1, {});
  std::vector<Work> queue{{0, all.size(), 0, 0}};
  for (size_t next = 0; next < queue.size(); ++next) {
    auto [begin, end, depth, node] = queue[next];
    if (begin < end && all[begin].token.size() == depth) nodes_[node].token = all[begin++].id;
    nodes_[node].first = static_cast<uint32_t>(edges_.size());
    while (begin < end) {
      const char byte = all[begin].token[depth];
      size_t last = begin;
      while (last < end && all[last].token[depth] == byte) ++last;
      const auto fresh = static_cast<uint32_t>(nodes_.size());
      nodes_.emplace_back();
      edges_.push_back({static_cast<unsigned char>(byte), fresh});
      ++nodes_[node].count;
      queue.push_back({begin, last, depth + 1, fresh});
      begin = last;
    }
  }
}

// The best way to each place, from the left.
template <class Real>
void UnigramModel::walk(std::string_view piece, std::vector<Best>& best) const {
  const Real unknown = static_cast<Real>(options_.least_score) - static_cast<Real>(kUnknownPenalty);
  size_t reached = 0;  // the last place that a token ends at so far
  for (size_t at = 0; at < piece.size();) {
    const auto letter = static_cast<size_t>(length_of_char(piece[at]));
    if (options_.precision == Precision::single_ && std::abs(best[at].score) > kLargeSum) {
      const Real far = static_cast<Real>(best[at].score);
      for (size_t i = at; i <= reached; ++i) {
        if (i == at || best[i].from != UINT32_MAX)
          best[i].score = static_cast<double>(static_cast<Real>(best[i].score) - far);
      }
    }
    const Real here = static_cast<Real>(best[at].score);
    const auto offer = [&](size_t end, Real score, int32_t token) {
      Best& target = best[end];
      const Real sum = score + here;
      reached = std::max(reached, end);
      if (target.from == UINT32_MAX || sum > static_cast<Real>(target.score))
        target = {static_cast<double>(sum), static_cast<uint32_t>(at), token};
    };
    bool alone = false;  // the character itself is a token
    uint32_t node = 0;
    for (size_t end = at; end < piece.size();) {
      const Edge* edge = edges_.data() + nodes_[node].first;
      const Edge* last = edge + nodes_[node].count;
      const auto byte = static_cast<unsigned char>(piece[end]);
      edge =
          std::lower_bound(edge, last, byte, [](const Edge& one, unsigned char b) { return one.byte < b; });
      if (edge == last || edge->byte != byte) break;
      node = edge->node;
      ++end;
      const int32_t token = nodes_[node].token;
      if (token < 0) continue;
      offer(end, static_cast<Real>(options_.scores[static_cast<size_t>(token)]), token);
      alone = alone || end - at == letter;
    }
    if (!alone) offer(at + letter, unknown, -1);
    at += letter;
  }
}

void UnigramModel::emit_unknown(std::string_view text, std::vector<int32_t>& out) const {
  if (const auto known = vocabulary_.find(text)) return out.push_back(*known);
  const auto token = [&](char byte) { return byte_tokens_[static_cast<unsigned char>(byte)]; };
  if (options_.byte_fallback &&
      std::all_of(text.begin(), text.end(), [&](char b) { return token(b) >= 0; })) {
    for (const char byte : text) out.push_back(token(byte));
    return;
  }
  if (!options_.unknown) {
    throw base::DataError(
        245,
        fmt::format("the tokenizer has no token for {} and none for unknown characters", base::quoted(text)));
  }
  out.push_back(*options_.unknown);
}

void UnigramModel::encode(std::string_view piece, size_t, Workspace&, std::vector<int32_t>& out) const {
  std::vector<Best> best(piece.size() + 1);
  options_.precision == Precision::single_ ? walk<float>(piece, best) : walk<double>(piece, best);
  std::vector<std::pair<uint32_t, uint32_t>> cuts;  // from the right; neighbours that are unknown are one
  const auto is_unknown = [&](int32_t token) { return token < 0 || token == options_.unknown; };
  bool fusing = false;
  for (auto end = static_cast<uint32_t>(piece.size()); end > 0;) {
    const Best& step = best[end];
    const bool unknown = is_unknown(step.token);
    if (unknown && fusing) {
      cuts.back().first = step.from;
    } else {
      cuts.emplace_back(step.from, end);
    }
    fusing = unknown;
    end = step.from;
  }
  for (auto cut = cuts.rbegin(); cut != cuts.rend(); ++cut) {
    const Best& step = best[cut->second];
    if (!is_unknown(step.token)) {
      out.push_back(step.token);
    } else {
      emit_unknown(piece.substr(cut->first, cut->second - cut->first), out);
    }
  }
}

uint64_t UnigramModel::hash() const {
  uint64_t hash =
      base::hash_combine(options_.byte_fallback, static_cast<uint64_t>(options_.unknown.value_or(-1)));
  for (const double score : options_.scores) {
    uint64_t bits;
    std::memcpy(&bits, &score, sizeof bits);
    hash = base::hash_combine(hash, bits);
  }
  return hash;
}

}  // namespace lockstep::text
