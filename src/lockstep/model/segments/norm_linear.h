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
  // Gradients of the weights are summed over so many pieces of the tokens that are here, then over the tree
  // (batch.product_strands).
  int pieces = 1;
  // A norm of its own gives what it gives a second time, under this name: each of the two gets the gradients
  // of its own maps, which are added up apart.
  std::string again = "";
  // Added to every weight: 1 where they are kept around zero, as Gemma keeps them, and begin there.
  float weight_offset = 0;
  Init first_weights() const { return {weight_offset == 0 ? Init::Kind::ones : Init::Kind::zeros}; }
};

// One weight of the joined map: Llama keeps q, k and v (or gate and up) apart but side by side.
struct JoinedWeight {
  std::string name;  // canonical, without ".weight"
  int64_t out = 0;
  int groups = 1;                // maps side by side in one matrix
  std::vector<int64_t> sizes{};  // of them, where they differ
};

struct NormLinearOptions {
  std::string segment;              // "qkv"
  std::string output;               // "qkv", "act"
  std::optional<NormOptions> norm;  // without: takes `input`
  std::string input = "normed";
  bool shares_input = false;  // without norm: "normed" is left for another segment
  LinearMap map;              // whole
  std::vector<JoinedWeight> weights;
  Activation activation = Activation::none;  // of map.curve; gated: the second half of the outputs by it
  std::optional<RopeOptions> rope;           // rotates q and k of the output
  int64_t interleaved =
      0;  // heads whose q, k and v lie together in the weight: the output has all of q first
  float init_std = 0.02f;
  Parts parts{};                 // tensor ranks hold parts of its outputs
  std::vector<int64_t> columns;  // q, k and v of its output, whole
};

// One segment, or, where tensor ranks share the map, two: the norm apart, with the seam between them.
void add_norm_linear(std::vector<std::unique_ptr<Segment>>& segments, NormLinearOptions options);

// The last norm of a model: takes hidden and residual, gives "normed".
std::unique_ptr<Segment> make_final_norm(NormOptions options, DType type, const Parts& parts);
// A norm for several maps behind it: takes hidden and residual, gives both their sum and "normed".
std::unique_ptr<Segment> make_norm(const std::string& segment, NormOptions options, DType type,
                                   const Parts& parts);
// The same without a norm: what is given as "normed" is the sum itself (OLMo 2). Of `options`: width, adds.
std::unique_ptr<Segment> make_sum(const std::string& segment, NormOptions options, DType type,
                                  const Parts& parts);
// Behind a map and before the residual: takes "hidden" and gives it normed (Gemma, OLMo 2).
std::unique_ptr<Segment> make_post_norm(const std::string& segment, NormOptions options, DType type,
                                        const Parts& parts);

// RMSNorm of q and k, then their rotation: takes "raw", gives "qkv". `whole`: over all heads of a token at
// once; else over each head for itself, with one weight for all heads.
struct QkNormOptions {
  DType type = DType::f32;
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
  bool whole = false;
  float epsilon = 1e-6f, weight_offset = 0;
  std::string q_name, k_name;  // canonical, without ".weight"
  std::optional<RopeOptions> rope;
  Parts parts{};
};
void add_qk_norm(std::vector<std::unique_ptr<Segment>>& segments, QkNormOptions options);

}  // namespace lockstep::model
