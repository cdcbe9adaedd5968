// A file's text, part by part: read where it lies, or unpacked on the way (unpack.h).
//
// A format says where its text may be cut; parts are about `part` bytes long. What lies packed is kept by the
// part that holds it, so memory is bounded by the parts in use, however large the file is or becomes.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "lockstep/base/mapped_file.h"
#include "lockstep/data/corpus/corpus.h"
#include "lockstep/data/formats/unpack.h"

namespace lockstep::data {

struct Cut {
  size_t part = size_t{1} << 20;  // bytes
  size_t longest = 0;             // bytes without a place to cut that are kept
  // The first place behind `from` where this text may be cut; npos: none yet.
  std::function<size_t(std::string_view text, size_t from)> find;
  // Text without a place to cut in `longest` bytes. Given: the rest up to the next newline is passed
  // over, and the part that holds its beginning is longer than `longest`. Otherwise nothing more is read than
  // that, and whoever gets the part refuses it.
  bool pass_over_long_lines = false;
};

class TextParts {
 public:
  TextParts(const std::string& file, Cut cut);
  // In the file's order; `first_line` counts from 1.
  std::optional<CorpusPart> next();
  int64_t size() const { return size_; }  // bytes of the file, packed or not
  const std::string& path() const { return path_; }

 private:
  std::optional<CorpusPart> next_mapped();
  std::optional<CorpusPart> next_packed();
  bool read_more(std::string& text);
  void pass_over_line();
  void pass_over_mapped_line();
  CorpusPart part_of(std::string_view bytes, int64_t taken);

  std::string path_;
  Cut cut_;
  base::MappedFile file_;                // of what is not packed
  std::unique_ptr<PackedFile> packed_;   // or null
  std::string rest_;                     // unpacked, of the next part
  bool at_end_ = false, begun_ = false;  // nothing more to unpack; a part was given
  bool in_long_line_ = false;            // the last part ended in a line that is too long
  int64_t size_ = 0, at_ = 0, taken_ = 0, line_ = 1;
};

}  // namespace lockstep::data
