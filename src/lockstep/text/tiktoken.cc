// tiktoken's files: a line a token, "base64 rank". They say neither how text is cut nor which tokens are
// special, so the vocabularies that people use are known here, by how many tokens they have.
#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "lockstep/base/hash.h"
#include "lockstep/base/number.h"
#include "lockstep/base/text.h"
#include "lockstep/text/base64.h"
#include "lockstep/text/byte_pairs.h"
#include "lockstep/text/fault.h"
#include "lockstep/text/kinds.h"
#include "lockstep/text/scan.h"

namespace lockstep::text {
namespace {

using Names = std::vector<std::string>;

Names numbered(const std::string& name, int first, int count) {
  Names out;
  for (int i = first; i < first + count; ++i) out.push_back(fmt::format(fmt::runtime(name), i));
  return out;
}
Names operator+(Names a, const Names& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// From `first` on, one after the other.
std::vector<AddedToken> specials_from(int32_t first, const Names& names) {
  std::vector<AddedToken> out;
  for (const std::string& name : names) out.push_back({.content = name, .id = first++, .special = true});
  return out;
}

std::vector<AddedToken> gpt2() { return specials_from(50256, {"<|endoftext|>"}); }
std::vector<AddedToken> cl100k() {
  auto out = specials_from(100257, {"<|endoftext|>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>"});
  out.push_back({.content = "<|endofprompt|>", .id = 100276, .special = true});
  return out;
}
std::vector<AddedToken> o200k() {
  return {{.content = "<|endoftext|>", .id = 199999, .special = true},
          {.content = "<|endofprompt|>", .id = 200018, .special = true}};
}
std::vector<AddedToken> llama3() {
  const Names named = {"<|begin_of_text|>",
                       "<|end_of_text|>",
                       "<|reserved_special_token_0|>",
                       "<|reserved_special_token_1|>",
                       "<|finetune_right_pad_id|>",
                       "<|step_id|>",
                       "<|start_header_id|>",
                       "<|end_header_id|>",
                       "<|eom_id|>",
                       "<|eot_id|>",
                       "<|python_tag|>",
                       "<|image|>"};
  return specials_from(128000, named + numbered("<|reserved_special_token_{}|>", 2, 244));
}
std::vector<AddedToken> llama4() {
  const auto post = [](int first, int count) {
    return numbered("<|text_post_train_reserved_special_token_{}|>", first, count);
  };
  const auto vision = [](int first, int count) {
    return numbered("<|vision_reserved_special_token_{}|>", first, count);
  };
  Names names = {"<|begin_of_text|>", "<|end_of_text|>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>",
                 "<|header_start|>",  "<|header_end|>",  "<|eom|>",        "<|eot|>",        "<|step|>"};
  names = names + post(0, 6) + Names{"<|python_start|>", "<|python_end|>", "<|finetune_right_pad|>"} +
          post(8, 61);
  names = names + Names{"<|image_start|>", "<|image_end|>"} + vision(0, 2) +
          Names{"<|tile_x_separator|>", "<|tile_y_separator|>"} + vision(2, 4) + Names{"<|image|>"} +
          vision(6, 1) + Names{"<|patch|>"} + vision(7, 1041);
  names = names + numbered("<|reasoning_reserved_special_token_{}|>", 0, 8) +
          Names{"<|reasoning_thinking_start|>", "<|reasoning_thinking_end|>"};
  return specials_from(
      200000, names + numbered("<|reserved_special_token_{}|>", 0, 2048 - static_cast<int>(names.size())));
}
std::vector<AddedToken> qwen() {
  return specials_from(
      151643, Names{"<|endoftext|>", "<|im_start|>", "<|im_end|>"} + numbered("<|extra_{}|>", 0, 205));
}
std::vector<AddedToken> qwen35() {
  return specials_from(248044, {"<|endoftext|>",
                                "<|im_start|>",
                                "<|im_end|>",
                                "<|object_ref_start|>",
                                "<|object_ref_end|>",
                                "<|box_start|>",
                                "<|box_end|>",
                                "<|quad_start|>",
                                "<|quad_end|>",
                                "<|vision_start|>",
                                "<|vision_end|>",
                                "<|vision_pad|>",
                                "<|image_pad|>",
                                "<|video_pad|>",
                                "<tool_call>",
                                "</tool_call>",
                                "<|fim_prefix|>",
                                "<|fim_middle|>",
                                "<|fim_suffix|>",
                                "<|fim_pad|>",
                                "<|repo_name|>",
                                "<|file_sep|>",
                                "<tool_response>",
                                "</tool_response>",
                                "<think>",
                                "</think>",
                                "<|audio_start|>",
                                "<|audio_end|>",
                                "<tts_pad>",
                                "<tts_text_bos>",
                                "<tts_text_eod>",
                                "<tts_text_bos_single>",
                                "<|audio_pad|>"});
}

struct Known {
  const char* name;
  size_t tokens;
  const std::string_view& pattern;
  bool nfc;
  std::vector<AddedToken> (*specials)();
};
const Known kKnown[] = {
    {"gpt2", 50256, kGpt2Pattern, false, gpt2},
    {"p50k_base", 50280, kGpt2Pattern, false, gpt2},
    {"cl100k_base", 100256, kCl100kPattern, false, cl100k},
    {"o200k_base", 199998, kO200kPattern, false, o200k},
    {"Llama 3", 128000, kLlama3Pattern, false, llama3},
    {"Llama 4", 200000, kO200kPattern, false, llama4},
    {"Qwen", 151643, kQwenPattern, true, qwen},
    {"Qwen 3.5", 248044, kQwen35Pattern, true, qwen35},
};

const Known& known_of(size_t tokens) {
  Names names;
  for (const Known& known : kKnown) {
    if (known.tokens == tokens) return known;
    names.push_back(fmt::format("{} ({})", known.name, known.tokens));
  }
  throw Fault{
      244,
      fmt::format(
          "a tiktoken file of {} tokens does not say how text is cut, and is none of those known here: {}; "
          "take its tokenizer.json",
          tokens, base::join(names, ", "))};
}

std::vector<ByteToken> read_tokens(std::string_view text) {
  std::vector<ByteToken> out;
  size_t line_number = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = base::trimmed(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    ++line_number;
    if (line.empty()) continue;
    const size_t space = line.find(' ');
    const auto bytes = from_base64(line.substr(0, space));
    const int32_t rank = space == std::string_view::npos
                             ? -1
                             : base::parse_number<int32_t>(line.substr(space + 1)).value_or(-1);
    if (!bytes || bytes->empty() || rank < 0 || rank >= kMostTokens) {
      throw Fault{241, fmt::format("line {} is {}, and base64, a space and a rank are expected", line_number,
                                   base::quoted(line, 60))};
    }
    out.push_back({*bytes, rank});
  }
  return out;
}

std::unique_ptr<Tokenizer> open(const std::string&, std::string_view bytes) {
  const std::vector<ByteToken> tokens = read_tokens(bytes);
  const Known& known = known_of(tokens.size());
  return make_byte_tokenizer({.source = fmt::format("tiktoken, {}", known.name),
                              .tokens = tokens,
                              .pattern = std::string(known.pattern),
                              .nfc = known.nfc,
                              .added = known.specials()});
}

// A first line of base64 and a number.
bool is(std::string_view begin) {
  const std::string_view line = base::trimmed(begin.substr(0, begin.find('\n')));
  const size_t space = line.find(' ');
  return space != std::string_view::npos && space > 0 && from_base64(line.substr(0, space)).has_value() &&
         base::parse_number<int64_t>(line.substr(space + 1)).has_value();
}

}  // namespace

const FileKind kTiktoken = {"tiktoken", "*.tiktoken", is, open};

}  // namespace lockstep::text
