// How one rank's part of a parameter lies in the whole, where tensor parallelism cuts it.
//
// A parameter is cut along one dimension into equal parts. GPT-2 keeps q, k and v side by side in one matrix:
// there, each of the groups is cut alike, and a rank holds its part of each; Phi-3 does so too, and its
// groups differ in size. A vocabulary that the ranks do not divide is padded: the last parts hold rows of
// zeros that nobody reads, saves or hashes.
#pragma once

#include <vector>

#include "lockstep/device/tensor.h"

namespace lockstep::model {

struct Cut {
  int dim = 0, groups = 1;
  int part = 0, parts = 1;
  int64_t rows = 0;              // of the whole, where it is padded; 0: the parts fill it
  std::vector<int64_t> sizes{};  // of the groups, where they differ
  // The numeric contract cuts it so (batch.product_strands), whatever the number of ranks: a rank may hold
  // several parts, each a parameter of its own.
  bool fixed = false;
  bool cuts() const { return parts > 1; }
  bool pads() const { return rows > 0; }
};

// Rows of a vocabulary that each of so many ranks holds, those of padding among them.
int64_t rows_of_part(int64_t rows, int parts);
Cut cut_rows(int64_t rows, int part, int parts);
// Of rows_of_part(), those that are the vocabulary's.
int64_t true_rows(int64_t rows, int part, int parts);

device::Shape whole_shape(const Cut& cut, const device::Shape& part);

}  // namespace lockstep::model
