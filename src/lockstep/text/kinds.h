// The kinds of files that tokenizers come in: one source file and one row each.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "lockstep/text/tokenizer.h"

namespace lockstep::text {

struct FileKind {
  const char* name;                    // for people: "tokenizer.json"
  const char* pattern;                 // how such files are called in a folder: "*.tiktoken"
  bool (*is)(std::string_view begin);  // by its first bytes
  // `path` lies in the folder whose other files may say more. Throws Fault.
  std::unique_ptr<Tokenizer> (*open)(const std::string& path, std::string_view bytes);
};

extern const FileKind kTokenizerJson, kTekken, kTiktoken, kSentencePiece;

}  // namespace lockstep::text
