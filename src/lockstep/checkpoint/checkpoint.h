// A checkpoint: a folder that Hugging Face's transformers opens as it is, with the optimizer beside.
//
//     checkpoints/step-00000100/model-00001-of-00001.safetensors, model.safetensors.index.json, config.json,
//                               optimizer-00001-of-00001.safetensors, manifest.json
//
// manifest.json is written last and is the commit point: a folder without one is not a checkpoint, and no
// rename is relied on. Sizes and checksums in it are verified while loading.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/checkpoint/safetensors.h"

namespace lockstep::checkpoint {

struct Contents {
  int64_t step = 0;                   // steps done
  std::vector<HostTensor> model;      // under canonical names: masters in fp32, statistics in their own types
  std::vector<HostTensor> optimizer;  // "NAME.m", "NAME.v"
  std::string config_json;            // Hugging Face's config.json; empty for families that it does not know
  std::string recipe_toml;            // the run's resolved recipe
  std::vector<unsigned char> state;   // StepState, as bytes
  std::string params_hash;            // of the masters, for `inspect` and for a check after loading
};

// Writes checkpoints/step-NNNNNNNN under run_folder, then removes older ones beyond `keep` (at least 1).
// Returns the checkpoint's folder. Files that a broken save left behind are cleared first.
std::string save(const std::string& run_folder, const Contents& contents, int keep);

struct Manifest {
  int64_t step = 0;
  std::string recipe_toml, params_hash;
  std::vector<unsigned char> state;
  std::vector<FileSummary> files;
};

// A complete checkpoint's folder, opened. Tensors are found by name across its files; a plain Hugging Face
// folder (sharded or single file, no manifest) opens too, with manifest() empty.
class Opened {
 public:
  explicit Opened(const std::string& folder, bool verify = true);  // DataError (LS03xx) names file and tensor
  ~Opened();
  const std::optional<Manifest>& manifest() const;
  std::string config_json() const;  // empty when there is none
  bool has(const std::string& name) const;
  std::vector<std::string> names() const;
  // Copies a tensor into `to`: as fp32 (stored fp32, bf16 or fp16), or in the type it is stored in. Refuses
  // another shape.
  void read(const std::string& name, const device::Tensor& to) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Complete checkpoints of a run, newest first.
std::vector<std::string> list(const std::string& run_folder);

}  // namespace lockstep::checkpoint
