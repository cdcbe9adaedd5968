// norm, then a linear map, then perhaps a nonlinearity: the "qkv" and "up" segments of a layer.
//
// It takes "hidden" and "residual", adds them into the new residual (fused with the norm), and gives the
// map's output. The first layer of a model has only a residual yet: it reads and passes it.
#pragma once

#include <optional>

#include "lockstep/model/linear.h"
#include "lockstep/model/rope.h"

namespace lockstep::model {

enum class Activation : uint8_t { none, gelu, swiglu };

struct NormOptions {
  kernels::NormKind kind = kernels::NormKind::layer;
  int64_t width = 0;
  float epsilon = 1e-5f;
  std::string name;  // canonical name without ".weight"
  bool adds = true;  // hidden is there to be added
};

// One weight of the joined map: Llama keeps q, k and v (or gate and up) apart but side by side.
struct JoinedWeight {
  std::string name;  // canonical, without ".weight"
  int64_t out = 0;
};

struct NormLinearOptions {
  std::string segment;  // "qkv"
  std::string gives;    // "qkv", "act"
  NormOptions norm;
  LinearMap map;
  std::vector<JoinedWeight> weights;
  Activation activation = Activation::none;
  std::optional<RopeOptions> rope;  // rotates q and k of the output
  float init_std = 0.02f;
};

std::unique_ptr<Segment> make_norm_linear(NormLinearOptions options);

// The last norm of a model: takes hidden and residual, gives "normed".
std::unique_ptr<Segment> make_final_norm(NormOptions options, DType type);

}  // namespace lockstep::model
