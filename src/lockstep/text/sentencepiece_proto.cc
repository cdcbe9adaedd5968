#include "lockstep/text/sentencepiece_proto.h"

#include <cstring>
#include <functional>

#include "lockstep/text/fault.h"

namespace lockstep::text {
namespace {

[[noreturn]] void cut_off() {
  throw Fault{241, "it is truncated or damaged: a SentencePiece model is expected"};
}

uint64_t take_varint(std::string_view& bytes) {
  uint64_t value = 0;
  for (int shift = 0; shift < 64 && !bytes.empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(bytes.front());
    bytes.remove_prefix(1);
    value |= uint64_t{byte & 0x7Fu} << shift;
    if (byte < 0x80) return value;
  }
  cut_off();
}

std::string_view take(std::string_view& bytes, uint64_t count) {
  if (count > bytes.size()) cut_off();
  const std::string_view out = bytes.substr(0, count);
  bytes.remove_prefix(count);
  return out;
}

struct Field {
  uint64_t number;
  uint64_t value = 0;     // of numbers
  std::string_view text;  // of messages, strings and floats
};

void each_field(std::string_view bytes, const std::function<void(const Field&)>& use) {
  while (!bytes.empty()) {
    const uint64_t key = take_varint(bytes);
    Field field{.number = key >> 3, .text = {}};
    switch (key & 7) {
      case 0:
        field.value = take_varint(bytes);
        break;
      case 1:
        field.text = take(bytes, 8);
        break;
      case 2:
        field.text = take(bytes, take_varint(bytes));
        break;
      case 5:
        field.text = take(bytes, 4);
        break;
      default:
        cut_off();
    }
    use(field);
  }
}

SentencePieceProto::Piece read_piece(std::string_view bytes) {
  SentencePieceProto::Piece piece;
  each_field(bytes, [&](const Field& field) {
    if (field.number == 1) piece.text = field.text;
    if (field.number == 2 && field.text.size() == 4) std::memcpy(&piece.score, field.text.data(), 4);
    if (field.number == 3) {
      if (field.value < 1 || field.value > 6) cut_off();
      piece.type = static_cast<SentencePieceProto::Type>(field.value);
    }
  });
  return piece;
}

void read_trainer(std::string_view bytes, SentencePieceProto& model) {
  each_field(bytes, [&](const Field& field) {
    const auto id = static_cast<int32_t>(field.value);
    switch (field.number) {
      case 3:
        if (field.value < 1 || field.value > 4) cut_off();
        model.kind = static_cast<SentencePieceProto::Kind>(field.value);
        break;
      case 24:
        model.suffix_space = field.value != 0;
        break;
      case 35:
        model.byte_fallback = field.value != 0;
        break;
      case 40:
        model.unknown = id;
        break;
      case 41:
        model.begin = id;
        break;
      case 42:
        model.end = id;
        break;
      case 43:
        model.pad = id;
        break;
      case 44:
        model.unknown_surface = field.text;
        break;
      default:
        break;
    }
  });
}

void read_normalizer(std::string_view bytes, SentencePieceProto& model) {
  each_field(bytes, [&](const Field& field) {
    if (field.number == 2) model.charsmap = field.text;
    if (field.number == 3) model.dummy_prefix = field.value != 0;
    if (field.number == 4) model.remove_extra_spaces = field.value != 0;
    if (field.number == 5) model.escape_spaces = field.value != 0;
  });
}

}  // namespace

SentencePieceProto read_sentencepiece(std::string_view bytes) {
  SentencePieceProto model;
  each_field(bytes, [&](const Field& field) {
    if (field.number == 1) model.pieces.push_back(read_piece(field.text));
    if (field.number == 2) read_trainer(field.text, model);
    if (field.number == 3) read_normalizer(field.text, model);
    if (field.number == 5) {
      each_field(field.text, [&](const Field& inner) {
        if (inner.number == 2) model.denormalizer = inner.text;
      });
    }
  });
  if (model.pieces.empty()) cut_off();
  return model;
}

}  // namespace lockstep::text
