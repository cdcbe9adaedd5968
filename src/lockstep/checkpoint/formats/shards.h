// Tensors spread over files as Hugging Face does it: PREFIX-0000i-of-0000n.safetensors of at most 5 GB.
//
// The index says which file holds which tensor. A single file is numbered and indexed like many, so
// there is one shape of checkpoint for everyone who reads it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "lockstep/checkpoint/formats/safetensors.h"

namespace lockstep::checkpoint {

constexpr const char* kIndexName = "model.safetensors.index.json";
constexpr int64_t kMostShardBytes = 5'000'000'000;

// A file of tensors before it is written: everybody who writes a part of it knows where that goes.
struct PlannedFile {
  std::string name;
  std::string header;           // the bytes that it begins with
  std::vector<Whole> tensors;   // one after the other behind the header
  std::vector<int64_t> begins;  // of each, in bytes of the file
  int64_t bytes = 0;            // in all
};

// Weights and statistics in model-*, moments in optimizer-*, in the given order; a tensor larger than a file
// gets one of its own. At least one file of weights.
std::vector<PlannedFile> plan_files(const std::vector<Whole>& tensors, int64_t most_bytes = kMostShardBytes);
// The same with all weights in adapter_model.safetensors, under PEFT's names.
std::vector<PlannedFile> plan_adapter_files(const std::vector<Whole>& tensors,
                                            int64_t most_bytes = kMostShardBytes);

std::string index_text(const std::vector<PlannedFile>& files);  // of weights and statistics

// Tensor name to file name. DataError 303; the file names are as hostile as the file they come from.
std::map<std::string, std::string> read_index(const std::string& path);
std::map<std::string, std::string> parse_index(const std::string& text, const std::string& path);

}  // namespace lockstep::checkpoint
