// A checkpoint: a folder that Hugging Face's transformers opens as it is, with the optimizer beside.
//
//     checkpoints/step-00000100/model-00001-of-00001.safetensors, model.safetensors.index.json, config.json,
//                               optimizer-00001-of-00001.safetensors, manifest.json
//
// manifest.json is written last and is the commit point: a folder without one is not a checkpoint, and no
// rename is relied on. Sizes and checksums in it are verified while loading. save_team.h writes one, Opened
// reads it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/checkpoint/adapter.h"
#include "lockstep/checkpoint/formats/safetensors.h"
#include "lockstep/checkpoint/params_hash.h"
#include "lockstep/checkpoint/saving/disk.h"
#include "lockstep/checkpoint/saving/piece.h"
#include "lockstep/kernels/quantized/quantized.h"

namespace lockstep::checkpoint {

// The model under an adapter: where it was, and what tells it from others.
struct Base {
  std::string folder, fingerprint;
  // What it was rounded to while the adapter was trained, and which of its weights: an adapter is merged into
  // what it was trained beside.
  kernels::Quantized format = kernels::Quantized::none;
  std::vector<std::string> quantized = {};
};

// What a checkpoint says besides its tensors.
struct Facts {
  int64_t step = 0;                  // steps done
  std::string config_json;           // Hugging Face's config.json; empty for families that it does not know
  std::string recipe_toml;           // the run's resolved recipe
  std::vector<unsigned char> state;  // StepState, as bytes
  std::string layout;                // of the ranks that saved it, in words; nothing depends on it
  std::string adapter_json = {};     // PEFT's adapter_config.json, where only what is trained is saved
  std::optional<Base> base = {};     // and what it was trained on
};

// Which checkpoints stay: the newest `keep`, and those of every `every`-th step.
struct Retention {
  int keep = 1;
  int64_t every = 0;
};

struct Manifest {
  int64_t step = 0;
  std::string recipe_toml, params_hash, layout;
  std::vector<unsigned char> state;
  std::vector<FileSummary> files;
  // Tensors beside the weights that are no part of params_hash. None: what the optimizer keeps no "m" for.
  std::optional<std::vector<std::string>> statistics = {};
  // Of a run with adapters: the weights under them are not in this folder. params_hash is of all weights,
  // own_hash of those that are here.
  std::optional<Base> base = {};
  std::string own_hash = {};
};

// What of a folder that holds an adapter is seen: its own tensors alone; those of the model under it too; or
// that model with the adapter added to its weights, as if there were none. All the same for other folders.
enum class Adapters : uint8_t { alone, apart, merged };

// A complete checkpoint's folder, opened. Tensors are found by name across its files; a plain Hugging Face
// folder (safetensors or pytorch_model.bin, sharded or not) opens too, with manifest() empty. Sizes, the
// small files and the headers are checked at once, the bytes of tensors while they are read.
class Opened {
 public:
  // DataError (LS03xx) names file and tensor; 341 and 342: the model under an adapter is gone, or another.
  explicit Opened(const std::string& folder, Adapters adapters = Adapters::alone);
  ~Opened();
  const std::string& folder() const;
  const std::optional<Manifest>& manifest() const;
  const std::string& config_json() const;               // empty when there is none
  const std::optional<AdapterConfig>& adapter() const;  // PEFT's, of this folder
  // Not as it is stored: an adapter is added to this weight when it is read, or it is rounded to what the
  // adapter was trained beside.
  bool merges(const std::string& name) const;
  bool keeps_inputs_first() const;  // linear maps are [in, out], as GPT-2's are
  // Tells this model's weights from others, without reading all of them: names, types, shapes, and the first
  // bytes and some in the middle of each.
  std::string fingerprint() const;
  bool has(const std::string& name) const;
  std::vector<std::string> names() const;
  // As it is stored; its kind is a guess from the file's name. DataError 307.
  Whole find(const std::string& name) const;
  // Files of tensors by name, as they are on the disk.
  std::vector<const TensorFile*> files() const;

  // Copies pieces into host memory: as fp32 (stored fp32, bf16 or fp16), or in the type they are stored in.
  // Another shape or type is refused. Reads the bytes of the pieces and, where there are checksums, of the
  // MiB around their ends.
  struct Wanted {
    Piece piece;
    void* to = nullptr;
    bool hashed = false;  // its fp32 values, under the number piece.tensor.order
  };
  void read(const std::vector<Wanted>& wanted, HashSums* hashes = nullptr) const;
  bool same(const std::string& one, const std::string& other) const;  // shape and values, read as fp32
  void check_all() const;                                             // every byte of every file

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Complete checkpoints of a run, newest first.
std::vector<std::string> list(const std::string& run_folder);

// Folders newer than every complete one that have a manifest and cannot be used all the same, newest first.
struct Damaged {
  std::string why;          // a sentence with its number, naming the file
  bool unfinished = false;  // the manifest has no end: the save was killed at the last moment
};
std::vector<Damaged> damaged(const std::string& run_folder);

}  // namespace lockstep::checkpoint
