#include "lockstep/text/word_models.h"

#include <fmt/format.h>

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/hash.h"
#include "lockstep/base/text.h"
#include "lockstep/text/utf8.h"

namespace lockstep::text {

WordPieceModel::WordPieceModel(Vocabulary vocabulary, int32_t unknown, std::string prefix, int64_t most_chars)
    : Model(std::move(vocabulary)), unknown_(unknown), prefix_(std::move(prefix)), most_chars_(most_chars) {
  for (int64_t id = 0; id < vocabulary_.size(); ++id) {
    if (const std::string* token = vocabulary_.token(id)) longest_ = std::max(longest_, token->size());
  }
}

bool WordPieceModel::cut(std::string_view piece, std::vector<int32_t>& tokens) const {
  std::string written;
  for (size_t at = 0; at < piece.size();) {
    size_t end = std::min(piece.size(), at + longest_);
    while (end < piece.size() && continues_char(piece[end])) --end;
    int32_t token = -1;
    for (; end > at; end = static_cast<size_t>(char_before(piece.data() + end) - piece.data())) {
      written = at > 0 ? prefix_ : "";
      written += piece.substr(at, end - at);
      if ((token = vocabulary_.id(written)) >= 0) break;
    }
    if (token < 0) return false;
    tokens.push_back(token);
    at = end;
  }
  return true;
}

void WordPieceModel::encode(std::string_view piece, size_t readable, Workspace& space,
                            std::vector<int32_t>& out) const {
  if (space.cache.find(piece, readable, out)) return;
  std::vector<int32_t>& tokens = space.tokens;
  tokens.clear();
  const auto chars =
      std::count_if(piece.begin(), piece.end(), [](char byte) { return !continues_char(byte); });
  if (chars > most_chars_ || !cut(piece, tokens)) tokens.assign(1, unknown_);
  space.cache.keep(piece, tokens);
  out.insert(out.end(), tokens.begin(), tokens.end());
}

uint64_t WordPieceModel::hash() const {
  return base::hash_combine(base::hash_text(prefix_), static_cast<uint64_t>(unknown_ ^ most_chars_ << 32));
}

void WordLevelModel::encode(std::string_view piece, size_t, Workspace&, std::vector<int32_t>& out) const {
  if (const auto found = vocabulary_.find(piece)) return out.push_back(*found);
  if (unknown_) return out.push_back(*unknown_);
  throw base::DataError(245, fmt::format("the tokenizer has neither the word {} nor a token for unknown ones",
                                         base::quoted(piece)));
}

}  // namespace lockstep::text
