// Folders that are one dataset, written as such: Hugging Face's datasets.save_to_disk, and MosaicML's MDS.
//
// Their own list of files counts, not what else lies there (caches, statistics). Of several splits it is
// "train": another one is named as a folder of its own, data/test.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace lockstep::data {

// Nothing: a folder like any other. DataError 282: one that cannot be used. An MDS folder is its index.json.
std::optional<std::vector<std::string>> files_of_saved(const std::string& folder);

// A file that only says something of another one: Megatron's NAME.idx beside NAME.bin.
bool belongs_to_another(const std::string& file);

// NAME.bin, of a path as Megatron takes it: without an ending, or with that of its index.
std::optional<std::string> megatron_file(const std::string& path);

}  // namespace lockstep::data
