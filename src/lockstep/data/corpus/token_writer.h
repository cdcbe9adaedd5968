// Writes token files: beside their place, then renamed, so that a file that can be seen is whole.
//
// Tokens beyond what a header can count go into a next file: name.bin, or name-00000.bin, name-00001.bin, ...
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lockstep/data/formats/token_header.h"

namespace lockstep::data {

class TokenWriter {
 public:
  // `stem`: the path without ".bin". `vocab` tells how wide a token is.
  TokenWriter(std::string stem, int64_t vocab, uint64_t tokenizer, int64_t most_tokens = int64_t{1} << 30);
  ~TokenWriter();  // what was not finished is taken away
  TokenWriter(const TokenWriter&) = delete;
  TokenWriter& operator=(const TokenWriter&) = delete;

  void add(std::span<const int32_t> tokens);  // IoError 802
  // All of it is on disk, under its names, which come back. Without a token there is no file.
  std::vector<std::string> finish();
  int64_t tokens() const { return total_; }

 private:
  void open_next();
  void close_file();
  void write_all(const void* bytes, size_t size);
  [[noreturn]] void fail(const char* what) const;

  std::string stem_;
  const TokenFormat& format_;
  uint64_t tokenizer_;
  int64_t most_tokens_;
  int file_ = -1;
  int64_t in_file_ = 0, total_ = 0;
  std::vector<std::string> parts_;  // as they are called while they are written
  std::vector<char> buffer_;
};

}  // namespace lockstep::data
