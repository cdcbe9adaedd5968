// What the tests of this folder share: tensors with known bits, and what an action is refused with.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <deque>
#include <initializer_list>
#include <random>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/checkpoint/checkpoint.h"

namespace lockstep::checkpoint {

// What the action throws, as text; fails if it throws nothing or another number.
template <class Action>
std::string refusal(int number, Action action) {
  try {
    action();
  } catch (const base::Error& error) {
    EXPECT_EQ(error.number(), number) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "not refused";
  return "";
}

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

// A small checkpoint whose every bit follows from its step.
inline Contents contents_of(Tensors& tensors, int64_t step, int64_t rows = 16) {
  const uint64_t seed = static_cast<uint64_t>(step) * 100;
  Contents contents;
  contents.step = step;
  contents.model = {{"wte.weight", tensors.make(device::DType::f32, {rows, 8}, seed)},
                    {"ln_f.bias", tensors.make(device::DType::f32, {8}, seed + 1)}};
  contents.optimizer = {{"wte.weight.m", tensors.make(device::DType::f32, {rows, 8}, seed + 2)},
                        {"wte.weight.v", tensors.make(device::DType::f32, {rows, 8}, seed + 3)},
                        {"ln_f.bias.m", tensors.make(device::DType::f32, {8}, seed + 4)},
                        {"ln_f.bias.v", tensors.make(device::DType::f32, {8}, seed + 5)}};
  contents.config_json = R"({"model_type": "gpt2"})";
  contents.recipe_toml = "[run]\nname = \"first \\\"run\\\"\"\n";
  contents.state = {0, 1, 0xfe, 0xff, static_cast<unsigned char>(step)};
  contents.params_hash = "00000000deadbeef";
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
      opened.read(one.name, read);
      if (!same_bits(read, one.tensor)) return false;
    }
  }
  const auto& manifest = opened.manifest();
  return manifest && manifest->step == contents.step && manifest->state == contents.state &&
         manifest->recipe_toml == contents.recipe_toml && manifest->params_hash == contents.params_hash &&
         opened.config_json() == contents.config_json;
}

}  // namespace lockstep::checkpoint
