#include "lockstep/run/parameters.h"

#include <fmt/format.h>

#include "lockstep/base/hash.h"
#include "lockstep/base/philox.h"
#include "lockstep/kernels/step_state.h"

namespace lockstep::run {

using device::CopyKind;
using device::DType;
using device::Tensor;

Parameters::Parameters(const model::Model& model, const Memory& memory, device::Device& device)
    : model_(model), memory_(memory), device_(device), kernels_(kernels::kernels_for(device.id().kind)) {
  for (const model::Block& block : model.blocks) layouts_.push_back(model::layout_of(block));
}

void Parameters::initialize(uint64_t seed, float loss_scale) {
  for (size_t b = 0; b < layouts_.size(); ++b) {
    for (const char* name : {"weights", "gradient 0", "moment 1", "moment 2"}) {
      if (const Tensor t = memory_.find(fmt::format("b{} {}", b, name))) device_.fill_zero(t.data, t.bytes(), nullptr);
    }
    for (int level = 1;; ++level) {
      const Tensor t = memory_.find(fmt::format("b{} gradient {}", b, level));
      if (!t) break;
      device_.fill_zero(t.data, t.bytes(), nullptr);
    }
  }
  for (const Named& param : named()) {
    float* values = param.master.as<float>();
    const model::ParamSpec* spec = nullptr;
    for (const model::BlockLayout& layout : layouts_) {
      for (const model::PlacedParam& p : layout.params) {
        if (p.spec.name == param.name && p.spec.tied_to.empty()) spec = &p.spec;
      }
    }
    if (spec->init.kind == model::Init::Kind::given) {
      write(param.master, spec->init.values);
    } else if (spec->init.kind == model::Init::Kind::normal) {
      kernels_.fill_normal({param.master.numel(), values, 0, spec->init.deviation, seed, base::hash_text(param.name)}, {});
    } else {
      kernels_.fill_value({param.master.numel(), values, spec->init.kind == model::Init::Kind::ones ? 1.0f : 0.0f}, {});
    }
  }
  fill_tables();
  kernels::StepState start;
  start.loss_scale = loss_scale;
  write(state(), &start);
  refresh_compute();
  device_.synchronize(nullptr);
}

void Parameters::fill_tables() {
  for (const model::Block& block : model_.blocks) {
    for (const auto& segment : block.segments()) {
      std::vector<Tensor> tables;
      std::vector<std::vector<char>> host;
      for (const model::BufferSpec& spec : segment->buffers()) {
        host.emplace_back(static_cast<size_t>(spec.shape.numel() * device::size_of(spec.dtype)));
        tables.push_back({host.back().data(), spec.dtype, spec.shape});
      }
      if (tables.empty()) continue;
      segment->fill_buffers(tables);
      for (size_t k = 0; k < tables.size(); ++k) {
        if (const Tensor to = memory_.find(segment->buffers()[k].name)) write(to, tables[k].data);
      }
    }
  }
}

void Parameters::refresh_compute() {
  if (model_.compute == DType::f32) return;
  for (size_t b = 0; b < layouts_.size(); ++b) {
    const Tensor from = memory_.find(fmt::format("b{} weights", b));
    const Tensor to = memory_.find(fmt::format("b{} weights {}", b, device::name_of(model_.compute)));
    kernels_.cast({DType::f32, model_.compute, from.numel(), from.data, to.data}, {});
  }
  device_.synchronize(nullptr);
}

std::vector<Parameters::Named> Parameters::named() const {
  std::vector<Named> all;
  for (size_t b = 0; b < layouts_.size(); ++b) {
    const auto view = [&](const char* name, const model::PlacedParam& p) {
      const Tensor flat = memory_.find(fmt::format("b{} {}", b, name));
      return flat ? Tensor{flat.as<float>() + p.offset, DType::f32, p.spec.shape} : Tensor{};
    };
    for (const model::PlacedParam& p : layouts_[b].params) {
      if (!p.spec.tied_to.empty()) continue;
      Named named{p.spec.name, view("weights", p), {}};
      for (const char* moment : {"moment 1", "moment 2"}) {
        if (const Tensor t = view(moment, p)) named.moments.push_back(t);
      }
      all.push_back(std::move(named));
    }
  }
  return all;
}

std::vector<Parameters::Named> Parameters::statistics() const {
  std::vector<Named> all;
  for (const model::Block& block : model_.blocks) {
    for (const auto& segment : block.segments()) {
      for (const model::BufferSpec& spec : segment->buffers()) {
        if (!spec.constant) all.push_back({spec.name, memory_.find(spec.name), {}});
      }
    }
  }
  return all;
}

std::vector<uint64_t> Parameters::hash_chunks(const Tensor& values, const std::vector<kernels::Chunk>& chunks) const {
  std::vector<uint64_t> hashes(chunks.size() * 2);
  const auto table_bytes = static_cast<int64_t>(chunks.size() * sizeof(kernels::Chunk));
  const auto hash_bytes = static_cast<int64_t>(hashes.size() * sizeof(uint64_t));
  auto* table = static_cast<kernels::Chunk*>(device_.allocate(table_bytes));
  auto* result = static_cast<uint64_t*>(device_.allocate(hash_bytes));
  device_.copy(table, chunks.data(), table_bytes, CopyKind::host_to_device, nullptr);
  kernels_.hash_chunks({values.as<float>(), table, static_cast<int64_t>(chunks.size()), result}, {});
  device_.copy(hashes.data(), result, hash_bytes, CopyKind::device_to_host, nullptr);
  device_.synchronize(nullptr);
  device_.free(table);
  device_.free(result);
  return hashes;
}

std::string Parameters::hash() const {
  uint64_t high = 0x6A09E667F3BCC908ull, low = 0xBB67AE8584CAA73Bull;
  for (size_t b = 0; b < layouts_.size(); ++b) {
    const Tensor values = memory_.find(fmt::format("b{} weights", b));
    const auto chunks = model::chunks_of(layouts_[b], 0, false);
    if (chunks.empty()) continue;
    const std::vector<uint64_t> hashes = hash_chunks(values, chunks);
    for (size_t k = 0; k < chunks.size(); ++k) {
      high = base::mix64(high ^ hashes[2 * k]) + 0x9E3779B97F4A7C15ull;
      low = base::mix64(low ^ hashes[2 * k + 1]) + 0xC2B2AE3D27D4EB4Full;
    }
  }
  return fmt::format("{:016x}{:016x}", high, low);
}

void Parameters::write(const Tensor& to, const void* host) const {
  device_.copy(to.data, host, to.bytes(), CopyKind::host_to_device, nullptr);
  device_.synchronize(nullptr);
}

void Parameters::read(const Tensor& from, void* host) const {
  device_.copy(host, from.data, from.bytes(), CopyKind::device_to_host, nullptr);
  device_.synchronize(nullptr);
}

}  // namespace lockstep::run
