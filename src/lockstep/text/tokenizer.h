// Text to tokens and back, by the files that tokenizers come in.
//
//     const auto tokenizer = open_tokenizer("llama3/");       // tokenizer.json, *.tiktoken, *.model,
//     tekken.json const auto encoder = tokenizer->encoder();              // one for each thread
//     std::vector<int32_t> ids;
//     encoder->encode("Hello world", ids);                    // appends
//     tokenizer->decode(ids);                                 // "Hello world"
//
// Ids are equal to those of the library that the file belongs to (docs/tokenizers.md has the table). A
// tokenizer never changes once it is open and may be shared by threads; an encoder has memory of its own and
// may not. What a file asks for and we do not do is refused by its name when the file is opened, never left
// out.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::text {

struct EncodeOptions {
  bool add_special = true;  // what the tokenizer puts around a text: a first token, a last one
  bool parse_special =
      true;  // special tokens that stand in the text are tokens; false: they are text like any other
};

class Encoder {
 public:
  virtual ~Encoder() = default;
  // Appends the tokens of one text. Bytes that are no UTF-8 count as U+FFFD.
  virtual void encode(std::string_view text, std::vector<int32_t>& out,
                      const EncodeOptions& options = {}) = 0;
};

struct SpecialToken {
  std::string text;
  int32_t id;
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  virtual int64_t vocab() const = 0;  // ids are in [0, vocab); some may have no token
  virtual std::unique_ptr<Encoder> encoder() const = 0;
  // Ids without a token are left out. Text of byte-level tokenizers may be cut inside a character: it is
  // given as bytes, or with U+FFFD where the owner's library does so.
  virtual std::string decode(std::span<const int32_t> ids, bool skip_special = false) const = 0;
  virtual std::optional<int32_t> id_of(std::string_view token) const = 0;
  virtual const std::vector<SpecialToken>& special_tokens() const = 0;
  virtual std::optional<int32_t> begin_token() const = 0;  // <s>, <|begin_of_text|>
  virtual std::optional<int32_t> end_token() const = 0;    // </s>, <|endoftext|>
  virtual std::optional<int32_t> pad_token() const = 0;
  // What EncodeOptions::add_special puts before and behind a text.
  virtual void special_ids_around(std::vector<int32_t>& before, std::vector<int32_t>& behind) const = 0;
  virtual uint64_t hash() const = 0;  // of all that makes ids: alike for a file that was only written again
  virtual std::string describe() const = 0;  // "byte-level BPE of 128,256 tokens (tokenizer.json)"
  // Whether a long text may be cut before a space that stands between two ASCII letters, "x| y", and its
  // parts encoded apart: the ids are the same.
  virtual bool cuts_between_words() const = 0;
};

// A file, or a folder that holds one. ConfigError 240: there is none; DataError 241: it cannot be used, and
// why.
std::unique_ptr<Tokenizer> open_tokenizer(const std::string& path);

// The file that open_tokenizer() takes; empty: `path` is a folder without one, or nothing.
std::string find_tokenizer(const std::string& path);

}  // namespace lockstep::text
