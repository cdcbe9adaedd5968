#include "lockstep/run/executor/memory.h"

namespace lockstep::run {

using device::Tensor;

Memory::Memory(device::Device& device, program::Program& program, const Memory* lender)
    : device_(device), plan_(program::place(program)), tensors_(program.buffers.size()) {
  program::order(program);
  const auto allocate = [&](int64_t bytes) -> char* {
    if (bytes == 0) return nullptr;
    owned_.push_back(device.allocate(bytes));
    return static_cast<char*>(owned_.back());
  };
  try {
    if (plan_.host_bytes > 0 && lender == nullptr) host_ = device.allocate_host(plan_.host_bytes);
    char* block = lender == nullptr ? allocate(plan_.persistent_bytes) : nullptr;
    const bool borrow = lender != nullptr && lender->arena_bytes_ >= plan_.transient_bytes;
    arena_ = borrow ? lender->arena_ : allocate(plan_.transient_bytes);
    arena_bytes_ = borrow ? lender->arena_bytes_ : plan_.transient_bytes;
    for (size_t b = 0; b < program.buffers.size(); ++b) {
      const program::Buffer& buffer = program.buffers[b];
      if (buffer.external || buffer.offset < 0) continue;
      Tensor tensor{nullptr, buffer.dtype, buffer.shape};
      if (!buffer.persistent) {
        tensor.data = static_cast<char*>(arena_) + buffer.offset;
      } else if (buffer.host && host_ != nullptr) {
        tensor.data = static_cast<char*>(host_) + buffer.offset;
      } else if (block != nullptr) {
        tensor.data = block + buffer.offset;
      } else {
        const Tensor lent = lender != nullptr ? lender->find(buffer.name) : Tensor{};
        tensor.data = lent.bytes() >= buffer.bytes() && lent ? lent.data : allocate(buffer.bytes());
      }
      if (buffer.persistent) persistent_[buffer.name] = tensor;
      tensors_[b] = tensor;
    }
  } catch (...) {
    for (void* memory : owned_) device.free(memory);
    device.free_host(host_);
    throw;
  }
}

Memory::~Memory() {
  for (void* memory : owned_) device_.free(memory);
  device_.free_host(host_);
}

Tensor Memory::find(const std::string& name) const {
  const auto it = persistent_.find(name);
  return it == persistent_.end() ? Tensor{} : it->second;
}

}  // namespace lockstep::run
