// NumPy's .npy files of tokens: `np.save("train.npy", tokens)`.
//
// One dimension of whole numbers, of 8 to 64 bits, little-endian; the header says which, and is held against
// the file's size. Anything else is a DataError 235 with the line of Python that makes it fit.
#pragma once

#include <string>
#include <vector>

#include "lockstep/data/tokens/token_stream.h"

namespace lockstep::data {

bool is_npy(const base::MappedFile& file);

// What the header of a file that is_npy() says. DataError 235 where it cannot be read.
struct NpyHeader {
  std::string type;            // "<f4", "<i8", "|u1"
  std::string shape_text;      // "(1000, 28, 28)"
  std::vector<int64_t> shape;  // rows follow each other (not Fortran's order)
  int64_t data = 0;            // where the values begin
};
NpyHeader read_npy_header(const base::MappedFile& file);

TokenSegment open_npy(base::MappedFile file);  // of a file that is_npy()

}  // namespace lockstep::data
