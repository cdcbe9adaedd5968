// NumPy's .npy files of tokens: `np.save("train.npy", tokens)`.
//
// One dimension of whole numbers, of 8 to 64 bits, little-endian; the header says which, and is held against
// the file's size. Anything else is a DataError 235 with the line of Python that makes it fit.
#pragma once

#include "lockstep/data/token_stream.h"

namespace lockstep::data {

bool is_npy(const base::MappedFile& file);
TokenSegment open_npy(base::MappedFile file);  // of a file that is_npy()

}  // namespace lockstep::data
