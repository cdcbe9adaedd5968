// Where the files in a ZIP archive lie, as PyTorch writes it: stored, not compressed, with ZIP64 sizes.
//
// The reader trusts nothing: every offset, size and name is checked against the file before it is used.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "lockstep/checkpoint/checked_file.h"

namespace lockstep::checkpoint {

struct ZipEntry {
  int64_t begin = 0, bytes = 0;  // in the archive
};

// By name. DataError 312.
std::map<std::string, ZipEntry> read_zip(const CheckedFile& file);

}  // namespace lockstep::checkpoint
