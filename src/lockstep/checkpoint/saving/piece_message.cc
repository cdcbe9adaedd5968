#include "lockstep/checkpoint/saving/piece_message.h"

#include <nlohmann/json.hpp>

namespace lockstep::checkpoint {
namespace {

using Json = nlohmann::json;

Json shape_json(const device::Shape& shape) {
  Json sizes = Json::array();
  for (int i = 0; i < shape.rank(); ++i) sizes.push_back(shape[i]);
  return sizes;
}

}  // namespace

std::string message_of(const std::vector<Piece>& pieces) {
  Json all = Json::array();
  for (const Piece& piece : pieces) {
    Json ranges = Json::array();
    for (const Range& range : piece.ranges) ranges.push_back({range.begin, range.count});
    const Whole& t = piece.tensor;
    all.push_back({t.name, t.dtype, shape_json(t.shape), t.kind, t.order, piece.dimension, ranges,
                   piece.first, piece.count});
  }
  const std::vector<uint8_t> packed = Json::to_cbor(all);
  return {packed.begin(), packed.end()};
}

std::vector<Piece> pieces_of(const std::string& message) {
  std::vector<Piece> pieces;
  for (const Json& one : Json::from_cbor(message.begin(), message.end())) {
    Piece piece;
    piece.tensor = {one.at(0), one.at(1), shape_of(one.at(2).get<std::vector<int64_t>>()), one.at(3),
                    one.at(4)};
    piece.dimension = one.at(5);
    for (const Json& range : one.at(6)) piece.ranges.push_back({range.at(0), range.at(1)});
    piece.first = one.at(7);
    piece.count = one.at(8);
    pieces.push_back(std::move(piece));
  }
  return pieces;
}

}  // namespace lockstep::checkpoint
