#include "lockstep/text/byte_pairs.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <unordered_map>

#include "lockstep/base/hash.h"
#include "lockstep/base/text.h"
#include "lockstep/text/bpe_model.h"
#include "lockstep/text/byte_level.h"
#include "lockstep/text/fault.h"

namespace lockstep::text {
namespace {

using Ranks = std::unordered_map<std::string_view, int32_t>;

// Each way to cut a token into two tokens.
PairTable pairs_of(const ByteTokenizer& parts, const Ranks& ranks) {
  PairTable pairs(parts.tokens.size() * 3);
  const auto find = [&](std::string_view bytes) {
    const auto found = ranks.find(bytes);
    return found == ranks.end() ? -1 : found->second;
  };
  for (const ByteToken& token : parts.tokens) {
    const std::string_view bytes = token.bytes;
    for (size_t cut = 1; cut < bytes.size(); ++cut) {
      const int32_t left = find(bytes.substr(0, cut));
      const int32_t right = left < 0 ? -1 : find(bytes.substr(cut));
      if (right < 0) continue;
      pairs.add(left + parts.first_id, right + parts.first_id, static_cast<uint32_t>(token.rank),
                token.rank + parts.first_id);
    }
  }
  return pairs;
}

std::unique_ptr<Model> model_of(const ByteTokenizer& parts) {
  Ranks ranks;
  Vocabulary vocabulary;
  for (const ByteToken& token : parts.tokens) {
    if (!ranks.emplace(token.bytes, token.rank).second)
      throw Fault{241, fmt::format("the token of rank {} is there twice", token.rank)};
    if (vocabulary.token(token.rank + parts.first_id) != nullptr)
      throw Fault{241, fmt::format("two tokens have the rank {}", token.rank)};
    vocabulary.add(bytes_to_letters(token.bytes), token.rank + parts.first_id);
  }
  for (int byte = 0; byte < 256; ++byte) {
    const char one = static_cast<char>(byte);
    if (!ranks.contains({&one, 1}))
      throw Fault{241, fmt::format("it has no token for the byte {}, and all 256 are expected", byte)};
  }
  return std::make_unique<BpeModel>(std::move(vocabulary), pairs_of(parts, ranks),
                                    BpeOptions{.whole_first = true});
}

std::unique_ptr<PreTokenizer> splitter_of(const std::string& pattern) {
  const nlohmann::json split = {
      {"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Removed"}, {"invert", true}};
  const nlohmann::json letters = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
  return make_pre_tokenizer({{"type", "Sequence"}, {"pretokenizers", {split, letters}}});
}

}  // namespace

std::unique_ptr<Tokenizer> make_byte_tokenizer(ByteTokenizer parts) {
  PipelineParts out{.source = parts.source,
                    .added = parts.added,
                    .added_in_text = parts.added_in_text,
                    .pre_tokenizer = splitter_of(parts.pattern),
                    .model = model_of(parts),
                    .decode_by = DecodeBy::letters,
                    .begin = parts.begin,
                    .end = parts.end,
                    .pad = parts.pad};
  if (parts.nfc) {  // all of the text, before special tokens are looked for in it
    out.normalizer = make_python_nfc();
    for (AddedToken& token : out.added) token.normalized = true;
  }
  out.steps_hash = base::hash_combine(base::hash_text(parts.pattern), parts.nfc);
  return make_pipeline(std::move(out));
}

}  // namespace lockstep::text
