// Inside Opened: the files of one folder, its tensors by name, and what lies under an adapter.
#pragma once

#include <map>
#include <memory>
#include <set>

#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/formats/safetensors.h"
#include "lockstep/checkpoint/manifest.h"
#include "lockstep/checkpoint/merge.h"

namespace lockstep::checkpoint {

constexpr const char* kConfigName = "config.json";

bool stands(const std::string& folder,
            const char* name);  // the name is there at all, be it a link to nowhere
// As it is: whoever needs a part of it says what is wrong with that.
std::string read_config(const std::string& folder, const char* name);

struct Opened::State {
  struct Place {
    const TensorFile* file;
    const TensorFile::Entry* entry;
  };

  std::string folder;
  std::optional<Manifest> manifest;
  std::string config_json;
  std::map<std::string, std::unique_ptr<TensorFile>> files;  // by file name
  std::map<std::string, Place> tensors;
  std::optional<AdapterConfig> adapter;
  std::unique_ptr<Opened> base;                // under an adapter
  std::map<std::string, MergedWeight> merged;  // by the weight's name
  std::set<std::string> rounded;  // weights of the base that were quantized while the adapter was trained

  const TensorFile& open(const std::string& name, const std::string& named_by,
                         const std::optional<FileSummary>& expected = {});
  const TensorFile& open_pytorch(const std::string& name, const std::string& named_by);
  void add_all_of(const TensorFile& file);
  void open_checkpoint();
  void open_indexed(const char* index_name, bool pytorch);

  // opened_adapter.cc
  void open_adapter(Adapters adapters);
  void open_base();
  void add_merged(float scale);
  std::vector<float> values_of(const std::string& name) const;
  bool keeps_inputs_first() const;
  void read_merged(const Wanted& one, const MergedWeight& weight) const;
  void read_rounded(const Wanted& one) const;

  std::map<std::string, Place>::const_iterator look_up(const std::string& name) const;
  // Where a tensor is: in this folder, or in that of the model under an adapter.
  const State& holder_of(const std::string& name) const;
  bool has(const std::string& name) const;
  const Place& find(const std::string& name) const;
  const Place& find_as(const Whole& tensor) const;  // if it can be read as this one
  void read(const std::vector<Wanted>& wanted, HashSums* hashes) const;
};

}  // namespace lockstep::checkpoint
