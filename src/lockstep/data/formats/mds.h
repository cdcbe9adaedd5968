// Folders in MosaicML's MDS format: an index.json that lists shards, and the shards, compressed or not.
//
// The index stands for the folder: whoever reads data gets its path. A shard holds its number of samples,
// where each begins, and for each sample the sizes of its columns and their bytes. Columns of strings are
// text; arrays of whole numbers are tokens that were made before. Nothing is taken from a header that the
// file's own size does not bear out. DataError 279 names shard and sample.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/mapped_file.h"

namespace lockstep::data {

bool is_mds_index(const std::string& file);
int64_t mds_bytes(const std::string& index);  // of all shards, as they lie on the disk

// How numbers lie in a column.
struct MdsArray {
  int width = 0;  // bytes a number; 0: each array says it
  bool is_signed = false;
  bool fixed_shape = false;  // otherwise each array says it
};

struct MdsShard {
  std::string file;
  bool packed = false;  // with gzip or zstd
  int64_t raw_bytes = 0, samples = 0;
  std::vector<int64_t> sizes;  // of each column; -1: each sample says it
  size_t column = 0;           // the one that is wanted
  bool tokens = false;
  MdsArray array = {};  // of tokens
};

std::vector<MdsShard> read_mds_index(const std::string& index, const std::string& field);

// A shard in memory, its offsets checked.
class MdsData {
 public:
  explicit MdsData(const MdsShard& shard);
  int64_t samples() const { return shard_.samples; }
  int64_t begin_of(int64_t sample) const;  // byte of the shard; of samples(): its end
  std::string_view column_of(int64_t sample) const;
  void append_tokens(int64_t sample, std::vector<int32_t>& tokens) const;
  const MdsShard& shard() const { return shard_; }

 private:
  [[noreturn]] void refuse(int64_t sample, const std::string& why) const;
  uint32_t word_at(size_t at) const;

  MdsShard shard_;
  base::MappedFile file_;
  std::string unpacked_;
  std::string_view bytes_;
};

}  // namespace lockstep::data
