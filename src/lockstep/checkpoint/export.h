// A model's folder for others: weights alone, in the type wanted, as Hugging Face lays it out; or an adapter
// alone, as PEFT does.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/companions.h"

namespace lockstep::checkpoint {

struct Exported {
  int64_t tensors = 0, bytes = 0, files = 0;
  bool has_config = false;                   // config.json: transformers knows the family
  std::vector<std::string> companions = {};  // files of the tokenizer and the like (companions.h)
  int64_t overflowed = 0;                    // finite weights that the type cannot hold, now infinite
};

// From a checkpoint or any folder that Opened reads into `target`, which must be empty or not there
// (ConfigError 326). `type`: of the weights that are floats; none: as they are stored. Reads and writes a few
// MiB at a time. `beside`: the files to copy, and the token ids that config.json gets where it has none.
Exported export_model(const Opened& source, const std::string& target, std::optional<device::DType> type,
                      const Companions& beside = {});

// The adapter alone, as PEFT's files.
Exported export_adapter(const Opened& source, const std::string& target, std::optional<device::DType> type);
bool has_adapter(const Opened& source);  // a lora_A among its tensors

}  // namespace lockstep::checkpoint
