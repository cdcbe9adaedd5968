// tekken.json of mistral-common: byte strings by rank, behind a block of special tokens.
#include <algorithm>
#include <set>

#include "lockstep/text/base64.h"
#include "lockstep/text/byte_pairs.h"
#include "lockstep/text/json_part.h"
#include "lockstep/text/kinds.h"

namespace lockstep::text {
namespace {

// Of files that do not list theirs.
constexpr const char* kOldSpecials[] = {"<unk>",
                                        "<s>",
                                        "</s>",
                                        "[INST]",
                                        "[/INST]",
                                        "[AVAILABLE_TOOLS]",
                                        "[/AVAILABLE_TOOLS]",
                                        "[TOOL_RESULTS]",
                                        "[/TOOL_RESULTS]",
                                        "[TOOL_CALLS]",
                                        "[IMG]",
                                        "<pad>",
                                        "[IMG_BREAK]",
                                        "[IMG_END]",
                                        "[PREFIX]",
                                        "[MIDDLE]",
                                        "[SUFFIX]",
                                        "[SYSTEM_PROMPT]",
                                        "[/SYSTEM_PROMPT]",
                                        "[TOOL_CONTENT]"};

int64_t number_of(const Json& part, const char* key) {
  const Json& value = member(part, key);
  if (!value.is_number_integer() || value.get<int64_t>() < 0 || value.get<int64_t>() >= kMostTokens)
    refuse(fmt::format("\"{}\" is {}, and an integer from 0 to {} is expected", key,
                       base::quoted(value.dump(), 40), kMostTokens - 1));
  return value.get<int64_t>();
}

// They are never looked for in a text: mistral-common puts them there itself.
std::vector<AddedToken> specials_of(const Json& file, int64_t count) {
  std::vector<AddedToken> out;
  if (is_set(file, "special_tokens")) {
    for (const Json& one : file["special_tokens"])
      out.push_back({.content = text_of(one, "token_str"),
                     .id = static_cast<int32_t>(number_of(one, "rank")),
                     .special = true});
  } else {
    for (const char* name : kOldSpecials)
      out.push_back({.content = name, .id = static_cast<int32_t>(out.size()), .special = true});
  }
  if (static_cast<int64_t>(out.size()) > count)
    refuse(fmt::format("it has {} special tokens and room for {}", out.size(), count));
  for (auto id = static_cast<int32_t>(out.size()); id < count; ++id)
    out.push_back({.content = fmt::format("<SPECIAL_{}>", id), .id = id, .special = true});
  return out;
}

std::unique_ptr<Tokenizer> open(const std::string&, std::string_view bytes) {
  const Json file = Json::parse(bytes, nullptr, false);
  if (!file.is_object()) refuse("it is no JSON object: it is truncated or of another format");
  const Json& config = member(file, "config");
  const int64_t specials = number_of(config, "default_num_special_tokens");
  const int64_t tokens = number_of(config, "default_vocab_size") - specials;
  ByteTokenizer out{.source = "tekken.json", .tokens = {}, .pattern = text_of(config, "pattern")};
  for (const Json& one : member(file, "vocab")) {
    const auto rank = static_cast<int32_t>(number_of(one, "rank"));
    if (rank >= tokens) continue;  // beyond the size that the model has
    const auto text = from_base64(text_of(one, "token_bytes"));
    if (!text || text->empty()) refuse(fmt::format("the token of rank {} is no base64", rank));
    out.tokens.push_back({*text, rank});
  }
  if (static_cast<int64_t>(out.tokens.size()) != tokens)
    refuse(fmt::format("it has {} tokens, and its size promises {}", out.tokens.size(), tokens));
  out.first_id = static_cast<int32_t>(specials);
  out.added = specials_of(file, specials);
  out.added_in_text = false;
  return make_byte_tokenizer(std::move(out));
}

bool is(std::string_view begin) {
  return base::trimmed(begin).starts_with('{') && begin.find("\"token_bytes\"") != std::string_view::npos;
}

}  // namespace

const FileKind kTekken = {"tekken.json", "tekken*.json", is, open};

}  // namespace lockstep::text
