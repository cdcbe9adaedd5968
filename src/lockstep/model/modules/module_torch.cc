#include "lockstep/model/modules/module_torch.h"

#include <c10/core/CachingDeviceAllocator.h>

#include <set>

#include "lockstep/base/error.h"

namespace lockstep::model {

at::ScalarType scalar_type(DType type) {
  switch (type) {
    case DType::f32:
      return at::kFloat;
    case DType::bf16:
      return at::kBFloat16;
    case DType::f16:
      return at::kHalf;
    case DType::f64:
      return at::kDouble;
    case DType::i32:
      return at::kInt;
    case DType::i64:
      return at::kLong;
    case DType::u8:
      return at::kByte;
  }
  return at::kFloat;
}

DType dtype_of(const at::Tensor& tensor) {
  if (tensor.scalar_type() == at::kBool) return DType::u8;
  for (const DType type :
       {DType::f32, DType::bf16, DType::f16, DType::f64, DType::i32, DType::i64, DType::u8}) {
    if (scalar_type(type) == tensor.scalar_type()) return type;
  }
  throw base::ConfigError(
      172, std::string("values of type ") + c10::toString(tensor.scalar_type()) + " are not supported");
}

Shape shape_of(const at::Tensor& tensor) {
  const at::IntArrayRef s = tensor.sizes();
  switch (s.size()) {
    case 0:
      return {};
    case 1:
      return {s[0]};
    case 2:
      return {s[0], s[1]};
    case 3:
      return {s[0], s[1], s[2]};
    case 4:
      return {s[0], s[1], s[2], s[3]};
    default:
      return {s[0], s[0] > 0 ? tensor.numel() / s[0] : 0};
  }
}

std::vector<int64_t> batched(int64_t samples, const Shape& sample) {
  std::vector<int64_t> sizes{samples};
  for (int i = 0; i < sample.rank(); ++i) sizes.push_back(sample[i]);
  return sizes;
}

at::Tensor view_of(const Tensor& memory, at::IntArrayRef sizes, at::ScalarType type, at::Device where) {
  return at::for_blob(memory.data, sizes)
      .options(at::TensorOptions().dtype(type).device(where))
      .target_device(where)
      .make_tensor();
}

ModuleValues values_of(const AutogradOptions& options) {
  ModuleValues values;
  std::set<const void*> known;
  const auto add = [&](const std::string& key, const at::Tensor& tensor) {
    if (!tensor.defined() || !known.insert(tensor.unsafeGetTensorImpl()).second) return;
    try {
      dtype_of(tensor);
    } catch (const base::ConfigError& error) {
      throw base::ConfigError(172, "block " + options.name + ": " + key + ": " + error.what());
    }
    const bool trained = tensor.requires_grad() && tensor.is_floating_point();
    (trained ? values.trained : values.untrained).push_back({key, tensor});
  };
  for (const auto& parameter : options.module->named_parameters()) add(parameter.key(), parameter.value());
  for (const auto& buffer : options.module->named_buffers()) add(buffer.key(), buffer.value());
  return values;
}

void point_at(const at::Tensor& value, const Tensor& memory, at::ScalarType type, at::Device where) {
  if (value.numel() == 0 || value.const_data_ptr() == memory.data) return;
  at::Tensor(value).set_data(view_of(memory, value.sizes(), type, where));
}

Lease::Lease(const ModuleValues& values) {
  for (const auto* list : {&values.trained, &values.untrained}) {
    for (const ModuleValue& value : *list) lent_.push_back({value.tensor, value.tensor.device()});
  }
}

Lease::~Lease() {
  bool on_gpu = false;
  for (Lent& one : lent_) {
    const at::Tensor now = one.value.detach();
    on_gpu = on_gpu || now.is_cuda();
    one.value.set_data(now.to(at::TensorOptions().device(one.home).dtype(now.scalar_type()),
                              /*non_blocking=*/false, /*copy=*/true));
  }
  // What LibTorch keeps for the session's stream is of use to no other.
  if (on_gpu) c10::getDeviceAllocator(at::kCUDA)->emptyCache();
}

}  // namespace lockstep::model
