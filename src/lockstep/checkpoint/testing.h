// What the tests of this folder share: tensors with known bits, and checkpoints of them.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <deque>
#include <initializer_list>
#include <map>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/refusal.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/saving/file_writer.h"
#include "lockstep/checkpoint/saving/save_team.h"

namespace lockstep::checkpoint {

using base::refusal;

// Owns the memory of test tensors, filled with the bits of a seed.
class Tensors {
 public:
  device::Tensor make(device::DType dtype, const device::Shape& shape, uint64_t seed) {
    std::vector<unsigned char>& memory =
        memory_.emplace_back(static_cast<size_t>(shape.numel() * device::size_of(dtype)));
    std::mt19937_64 random(seed);
    for (unsigned char& byte : memory) byte = static_cast<unsigned char>(random());
    return {memory.data(), dtype, shape};
  }

 private:
  std::deque<std::vector<unsigned char>> memory_;
};

struct HostTensor {
  std::string name;
  device::Tensor tensor;  // host memory that the caller owns
};

// A file of these tensors, written at one go.
inline FileSummary write_safetensors(const std::string& path, const std::vector<HostTensor>& tensors,
                                     const std::map<std::string, std::string>& metadata = {}) {
  std::vector<Whole> wholes;
  for (const HostTensor& one : tensors) wholes.push_back({one.name, one.tensor.dtype, one.tensor.shape});
  FileWriter file = FileWriter::create(path);
  file.append(safetensors_header(wholes, metadata));
  for (const HostTensor& one : tensors)
    file.append(std::span(one.tensor.as<const std::byte>(), static_cast<size_t>(one.tensor.bytes())));
  return file.finish();
}

// All of a tensor.
inline std::string tensor_bytes(const TensorFile& file, const TensorFile::Entry& entry) {
  return file.file().text(entry.begin, entry.end - entry.begin);
}
inline void read_tensor(const Opened& opened, const std::string& name, const device::Tensor& to) {
  opened.read({{whole_piece({.name = name, .dtype = to.dtype, .shape = to.shape}), to.data}});
}

// All of a checkpoint in memory.
struct Contents {
  Facts facts;
  std::vector<HostTensor> model, optimizer;
};

inline std::vector<std::pair<Whole, const void*>> tensors_of(const Contents& contents) {
  std::vector<std::pair<Whole, const void*>> all;
  for (const auto* list : {&contents.model, &contents.optimizer}) {
    const Kind kind = list == &contents.model ? Kind::weight : Kind::moment;
    for (const HostTensor& one : *list) {
      const auto order = static_cast<int64_t>(all.size());
      all.push_back({{one.name, one.tensor.dtype, one.tensor.shape, kind, order}, one.tensor.data});
    }
  }
  return all;
}

// Saves it as the only rank; returns the folder or throws what the save failed with.
inline std::string save(const std::string& run_folder, const Contents& contents, Retention retention,
                        const Disk& disk = system_disk()) {
  std::vector<Piece> pieces;
  for (const auto& [tensor, data] : tensors_of(contents)) pieces.push_back(whole_piece(tensor));
  SaveTeam team({}, pieces, {.run_folder = run_folder, .retention = retention, .disk = &disk});
  std::vector<std::byte> memory(static_cast<size_t>(team.memory_bytes()));
  for (size_t k = 0; k < pieces.size(); ++k) {
    if (pieces[k].count > 0)
      std::memcpy(memory.data() + team.offsets()[k], tensors_of(contents)[k].second,
                  static_cast<size_t>(pieces[k].bytes()));
  }
  const Outcome outcome = team.save(contents.facts, memory);
  if (outcome.error != 0) throw base::IoError(outcome.error, outcome.why);
  return outcome.folder;
}
inline std::string save(const std::string& run_folder, const Contents& contents, int keep) {
  return save(run_folder, contents, Retention{.keep = keep});
}

// A small checkpoint whose every bit follows from its step.
inline Contents contents_of(Tensors& tensors, int64_t step, int64_t rows = 16) {
  const uint64_t seed = static_cast<uint64_t>(step) * 100;
  Contents contents;
  contents.facts.step = step;
  contents.model = {{"wte.weight", tensors.make(device::DType::f32, {rows, 8}, seed)},
                    {"ln_f.bias", tensors.make(device::DType::f32, {8}, seed + 1)}};
  contents.optimizer = {{"wte.weight.m", tensors.make(device::DType::f32, {rows, 8}, seed + 2)},
                        {"wte.weight.v", tensors.make(device::DType::f32, {rows, 8}, seed + 3)},
                        {"ln_f.bias.m", tensors.make(device::DType::f32, {8}, seed + 4)},
                        {"ln_f.bias.v", tensors.make(device::DType::f32, {8}, seed + 5)}};
  contents.facts.config_json = R"({"model_type": "gpt2"})";
  contents.facts.recipe_toml = "[run]\nname = \"first \\\"run\\\"\"\n";
  contents.facts.state = {0, 1, 0xfe, 0xff, static_cast<unsigned char>(step)};
  contents.facts.layout = "1 rank";
  return contents;
}

inline bool same_bits(const device::Tensor& a, const device::Tensor& b) {
  return a.dtype == b.dtype && a.shape == b.shape &&
         (a.bytes() == 0 || std::memcmp(a.data, b.data, static_cast<size_t>(a.bytes())) == 0);
}

// Whether the opened checkpoint holds these contents, bit for bit.
inline bool holds(const Opened& opened, const Contents& contents) {
  Tensors memory;
  for (const auto* tensors : {&contents.model, &contents.optimizer}) {
    for (const HostTensor& one : *tensors) {
      const device::Tensor read = memory.make(device::DType::f32, one.tensor.shape, 0);
      read_tensor(opened, one.name, read);
      if (!same_bits(read, one.tensor)) return false;
    }
  }
  const auto& manifest = opened.manifest();
  const Facts& facts = contents.facts;
  return manifest && manifest->step == facts.step && manifest->state == facts.state &&
         manifest->recipe_toml == facts.recipe_toml && manifest->layout == facts.layout &&
         opened.config_json() == facts.config_json;
}

}  // namespace lockstep::checkpoint
