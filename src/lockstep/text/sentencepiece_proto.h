// SentencePiece's .model: a protobuf of pieces and settings, read by hand.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::text {

struct SentencePieceProto {
  enum class Type : uint8_t { normal = 1, unknown, control, user_defined, unused, byte };
  enum class Kind : uint8_t { unigram = 1, bpe, word, character };
  struct Piece {
    std::string text;
    float score = 0;
    Type type = Type::normal;
  };
  std::vector<Piece> pieces;
  Kind kind = Kind::unigram;
  bool byte_fallback = false, suffix_space = false;
  int32_t unknown = 0, begin = 1, end = 2, pad = -1;
  std::string unknown_surface = " \xE2\x81\x87 ";
  std::string charsmap;
  bool dummy_prefix = true, remove_extra_spaces = true, escape_spaces = true;
  std::string denormalizer;
};

SentencePieceProto read_sentencepiece(std::string_view bytes);  // Fault 241

}  // namespace lockstep::text
