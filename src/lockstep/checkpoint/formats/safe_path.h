// Files that a checkpoint's own text names: they may lie in its folder and nowhere else.
//
// An index or manifest from outside could name "../../.ssh/id_rsa" or a link to it. Links within the
// folder are fine, and so are those of the Hugging Face cache (snapshots/REVISION/x -> ../../blobs/HASH).
#pragma once

#include <string>

namespace lockstep::checkpoint {

// A small file of a checkpoint, whole. DataError 305: it cannot be read, as when another disk or mode would
// do.
std::string read_small_file(const std::string& path, int64_t most_bytes);

// A file name without a folder: no slash, not "." or "..", no control character.
bool is_plain_name(const std::string& name);

// The path of `name` in `folder`. DataError 305 when it is missing, 308 when it leads elsewhere or is no
// regular file; `named_by` is the file that names it.
std::string file_inside(const std::string& folder, const std::string& name, const std::string& named_by);

}  // namespace lockstep::checkpoint
