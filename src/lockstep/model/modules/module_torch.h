// The values of a torch::nn::Module, between its own memory and a session's.
//
// A tensor handle here is the module's own: set_data() changes what the module computes with.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lockstep/model/modules/autograd_torch.h"

namespace lockstep::model {

struct ModuleValue {
  std::string key;    // "conv.weight"
  at::Tensor tensor;  // the module's handle
};

at::ScalarType scalar_type(DType type);
std::vector<int64_t> batched(int64_t samples, const Shape& sample);
at::Tensor view_of(const Tensor& memory, at::IntArrayRef sizes, at::ScalarType type, at::Device where);

// Parameters that are trained, and the rest: buffers and frozen parameters. A tensor under two names counts
// once.
struct ModuleValues {
  std::vector<ModuleValue> trained, untrained;
};
ModuleValues values_of(const AutogradOptions& options);  // ConfigError 172 for types that cannot be kept
DType dtype_of(const at::Tensor& tensor);                // of an untrained value
Shape shape_of(const at::Tensor& tensor);                // more than four dimensions: [first, all others]

// Lets `value` read and write `memory`, which has its size, from now on.
void point_at(const at::Tensor& value, const Tensor& memory, at::ScalarType type, at::Device where);

// Held by everything whose values live in a session's memory. The last one to go gives the module memory of
// its own again, where it had it before, with the values of that moment.
class Lease {
 public:
  explicit Lease(const ModuleValues& values);
  ~Lease();
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;

 private:
  struct Lent {
    at::Tensor value;
    at::Device home;
  };
  std::vector<Lent> lent_;
};

}  // namespace lockstep::model
