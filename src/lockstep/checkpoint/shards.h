// Tensors spread over files as Hugging Face does it: PREFIX-0000i-of-0000n.safetensors of at most 5 GB.
//
// The index says which file holds which tensor. A single file is numbered and indexed like many, so
// there is one shape of checkpoint for everyone who reads it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "lockstep/checkpoint/safetensors.h"

namespace lockstep::checkpoint {

constexpr const char* kIndexName = "model.safetensors.index.json";
constexpr int64_t kMostShardBytes = 5'000'000'000;

struct Shard {
  std::string file_name;
  std::vector<HostTensor> tensors;
};

// In the given order; a tensor larger than a shard gets one of its own. At least one shard.
std::vector<Shard> plan_shards(const std::string& prefix, const std::vector<HostTensor>& tensors,
                               int64_t most_bytes = kMostShardBytes);

std::vector<FileSummary> write_shards(const std::string& folder, const std::vector<Shard>& shards);
FileSummary write_index(const std::string& folder, const std::vector<Shard>& shards);

// Tensor name to file name. DataError 303; the file names are as hostile as the file they come from.
std::map<std::string, std::string> read_index(const std::string& path);

}  // namespace lockstep::checkpoint
