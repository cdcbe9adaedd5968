// norm, then a linear map, then perhaps a nonlinearity: the "qkv" and "up" segments of a layer.
//
// It takes "hidden" and "residual", adds them into the new residual (fused with the norm), and gives the
// map's output. The first layer of a model has only a residual yet: it reads and passes it.
#pragma once

#include <optional>

#include "lockstep/model/segments/linear.h"
#include "lockstep/model/segments/rope.h"

namespace lockstep::model {

enum class Activation : uint8_t { none, plain, gated };

struct NormOptions {
  kernels::NormKind kind = kernels::NormKind::layer;
  int64_t width = 0;
  float epsilon = 1e-5f;
  std::string name;     // canonical name without ".weight"
  bool adds = true;     // hidden is there to be added
  int token_parts = 1;  // tensor ranks take so many parts of the tokens
};

// One weight of the joined map: Llama keeps q, k and v (or gate and up) apart but side by side.
struct JoinedWeight {
  std::string name;  // canonical, without ".weight"
  int64_t out = 0;
  int groups = 1;  // maps side by side in one matrix
};

struct NormLinearOptions {
  std::string segment;              // "qkv"
  std::string output;               // "qkv", "act"
  std::optional<NormOptions> norm;  // without: takes "normed"
  LinearMap map;                    // whole
  std::vector<JoinedWeight> weights;
  Activation activation = Activation::none;  // of map.curve; gated: the second half of the outputs by it
  std::optional<RopeOptions> rope;           // rotates q and k of the output
  float init_std = 0.02f;
  Parts parts{};                 // tensor ranks hold parts of its outputs
  std::vector<int64_t> columns;  // q, k and v of its output, whole
};

// One segment, or, where tensor ranks share the map, two: the norm apart, with the seam between them.
void add_norm_linear(std::vector<std::unique_ptr<Segment>>& segments, NormLinearOptions options);

// The last norm of a model: takes hidden and residual, gives "normed".
std::unique_ptr<Segment> make_final_norm(NormOptions options, DType type, const Parts& parts);

}  // namespace lockstep::model
