// A piece: what one rank holds of one tensor of a checkpoint, whatever layout gave it to that rank.
//
// Three cuts, one after the other: tensor parallelism takes ranges of one dimension, ZeRO takes a run of
// elements of what is left, and of ranks that hold the same each writes a share. Saving and loading see
// nothing but pieces, and turn each into runs of the canonical tensor:
//
//     Piece piece{.tensor = {"wte.weight", DType::f32, {6, 4}}, .first = 4, .count = 8};
//     runs_of(piece)   // {{.at = 4, .from = 0, .count = 8}}
//     cut(piece, 1, 0, 2);  // the left half of every row
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/device/tensor.h"

namespace lockstep::checkpoint {

enum class Kind : uint8_t { weight, statistic, moment };  // moments are the optimizer's

// A tensor as the checkpoint holds it: canonical name, whole shape.
struct Whole {
  std::string name;
  device::DType dtype = device::DType::f32;
  device::Shape shape;
  Kind kind = Kind::weight;
  int64_t order = 0;  // among all tensors of its kind: files and params_hash follow the model's order
  int64_t bytes() const { return shape.numel() * device::size_of(dtype); }
  bool operator==(const Whole&) const = default;
};

// "[768, 64]"; of more sizes than any model has, the first few and how many there are.
std::string shape_text(const std::vector<int64_t>& sizes);
device::Shape shape_of(const std::vector<int64_t>& sizes);  // at most four

struct Range {
  int64_t begin = 0, count = 0;
  bool operator==(const Range&) const = default;
};

struct Piece {
  Whole tensor;
  int dimension = 0;             // that `ranges` cut
  std::vector<Range> ranges;     // of that dimension, in order; empty: all of it
  int64_t first = 0, count = 0;  // elements of what the ranges leave, row by row
  int64_t bytes() const { return count * device::size_of(tensor.dtype); }
};

// All of a tensor.
Piece whole_piece(Whole tensor);

// Cuts an uncut piece: part `part` of `parts` of a dimension; with groups, that part of each of as many equal
// groups (a fused q, k, v is three). It then holds all of what is left.
void cut(Piece& piece, int dimension, int64_t part, int64_t parts, int64_t groups = 1);

// The same of groups of these sizes, which fill the dimension.
void cut_groups(Piece& piece, int dimension, int64_t part, int64_t parts, const std::vector<int64_t>& sizes);

// Rows [begin, begin + count) of an uncut piece, which then holds all of them.
void cut_rows(Piece& piece, int64_t begin, int64_t count);

// Elements [at, at + count) of the canonical tensor are elements [from, from + count) of the piece.
struct Run {
  int64_t at = 0, from = 0, count = 0;
  bool operator==(const Run&) const = default;
};
std::vector<Run> runs_of(const Piece& piece);

// The piece's elements [begin, begin + count).
Piece part_of(const Piece& piece, int64_t begin, int64_t count);

// Of pieces that `copies` ranks hold alike, those that rank `copy` of them writes: about as many bytes for
// each, cut at multiples of 65,536 elements. `begins[k]` is where the k-th starts in the piece that it is of.
struct Assigned {
  Piece piece;
  size_t of = 0;      // index of the piece it was cut from
  int64_t begin = 0;  // element of that piece
};
std::vector<Assigned> share_of(const std::vector<Piece>& pieces, int copy, int copies);

// Every element of every tensor is in exactly one of the ranks' pieces, and ranks agree on what the tensors
// are; a Bug names the tensor and the ranks otherwise. Returns all tensors in the order in which files hold
// them.
std::vector<Whole> check_cover(const std::vector<std::vector<Piece>>& by_rank);

}  // namespace lockstep::checkpoint
