// Muon: momentum whose matrix is made orthogonal before it is applied (Jordan et al. 2024).
//
// For the matrices that hidden values pass. Embeddings, heads, norms and biases are AdamW's. The form is that
// of torch.optim.Muon: m = beta m + (1 - beta) g, then g + beta (m - g) is orthogonalized by five steps of
// Newton and Schulz, and scaled by sqrt(max(1, rows / columns)) of the tensor as it is stored. Their products
// are in bf16 on GPUs where the model's are, as torch.optim.Muon's always are; else in fp32 (TF32 on GPUs
// where precision.tf32 allows it).
#include <algorithm>
#include <cmath>
#include <utility>

#include "lockstep/base/round.h"
#include "lockstep/device/alignment.h"
#include "lockstep/optim/rows.h"

namespace lockstep::optim {

namespace {

using device::DType;
using device::Shape;
using kernels::Gemm;

constexpr int kSteps = 5;
constexpr float kA = 3.4445f, kB = -4.7750f, kC = 2.0315f;

// The products of a step on X [rows, columns]: the small square of it, its own square, and onto X again.
struct Products {
  Gemm square, fourth, onto;
  Products(const Shape& shape, DType type) {
    const int64_t rows = shape[0], columns = shape[1], small = std::min(rows, columns);
    const bool wide = rows <= columns;
    square = {.m = small, .n = small, .k = std::max(rows, columns), .trans_a = !wide, .trans_b = wide};
    fourth = {.m = small, .n = small, .k = small};
    onto = {.m = rows, .n = columns, .k = small};
    for (Gemm* product : {&square, &fourth, &onto}) product->in_type = product->out_type = type;
  }
};

// Where the values of an update lie in its scratch, in bytes. In bf16 x and y both lie where y lies in fp32,
// since x takes the direction in fp32.
struct Places {
  int64_t x = 0, y = 0, rounded = 0, square = 0, fourth = 0, sums = 0, workspace = 0, workspace_bytes = 0,
          end = 0;
  Places(const Shape& shape, const kernels::Kernels& kernels) {
    const auto place = [this](int64_t bytes) {
      return std::exchange(end, base::round_up(end + bytes, device::kAlignment));
    };
    const int64_t small = std::min(shape[0], shape[1]),
                  half = base::round_up(2 * shape.numel(), device::kAlignment);
    x = place(4 * shape.numel());
    y = place(std::max(4 * shape.numel(), 2 * half));
    rounded = y + half;
    square = place(4 * small * small);
    fourth = place(4 * small * small);
    sums = place(8 * base::divide_up(shape.numel(), kernels::kNormalizeRun));
    for (const DType type : {DType::f32, DType::bf16}) {
      const Products products(shape, type);
      for (const Gemm& product : {products.square, products.fourth, products.onto})
        workspace_bytes = std::max(workspace_bytes, kernels.gemm_workspace(product));
    }
    workspace = place(workspace_bytes);
  }
};

// Newton and Schulz: x becomes nearly orthogonal; y, square and fourth are scratch.
void orthogonalize(const WholeUpdate& u, const kernels::Launch& launch, DType type, void* x, void* y,
                   void* square, void* fourth) {
  const kernels::Kernels& run = *u.kernels;
  const Shape& shape = u.master.shape;
  const bool wide = shape[0] <= shape[1];
  Products products(shape, type);
  const int64_t small = products.fourth.m * products.fourth.m;
  products.square.a = products.square.b = x, products.square.c = square;
  products.fourth.a = products.fourth.b = square, products.fourth.c = fourth;
  products.onto.a = wide ? square : x, products.onto.b = wide ? x : square, products.onto.c = y;
  for (int step = 0; step < kSteps; ++step) {
    run.gemm(products.square, launch);
    run.gemm(products.fourth, launch);
    run.blend({type, small, square, fourth, kB, kC, square}, launch);
    run.gemm(products.onto, launch);
    run.blend({type, shape.numel(), x, y, kA, 1, x}, launch);
  }
}

void update(const WholeUpdate& u) {
  const Shape& shape = u.master.shape;
  const int64_t count = shape.numel();
  const kernels::Kernels& run = *u.kernels;
  const Places places(shape, run);
  const auto at = [&](int64_t place) { return static_cast<void*>(u.scratch.as<char>() + place); };
  auto* const x = static_cast<float*>(at(places.x));
  kernels::Launch launch = u.launch;
  launch.workspace = at(places.workspace);
  launch.workspace_bytes = places.workspace_bytes;

  run.muon_momentum({.count = count,
                     .gradient = u.gradient.as<float>(),
                     .m = u.state[0].data,
                     .m_type = u.state[0].dtype,
                     .beta = static_cast<float>(u.constants.beta1),
                     .direction = x,
                     .state = u.step},
                    launch);
  run.normalize({.count = count, .x = x, .sums = static_cast<double*>(at(places.sums))}, launch);
  if (u.products == DType::f32) {
    orthogonalize(u, launch, DType::f32, x, at(places.y), at(places.square), at(places.fourth));
  } else {
    run.cast({DType::f32, u.products, count, x, at(places.rounded)}, launch);
    orthogonalize(u, launch, u.products, at(places.rounded), at(places.y), at(places.square),
                  at(places.fourth));
    run.cast({u.products, DType::f32, count, at(places.rounded), x}, launch);
  }
  const double ratio = static_cast<double>(shape[0]) / static_cast<double>(shape[1]);
  run.muon_apply({.count = count,
                  .master = u.master.as<float>(),
                  .direction = x,
                  .rate = u.rate,
                  .scale = static_cast<float>(std::sqrt(std::max(1.0, ratio))),
                  .weight_decay = u.weight_decay,
                  .inputs = u.inputs,
                  .state = u.step},
                 launch);
}

}  // namespace

OptimizerKind muon() {
  return {.name = "muon",
          .describe = "orthogonalized momentum for hidden matrices, AdamW for all else",
          .reads = {"optim.momentum", "optim.beta1", "optim.beta2", "optim.epsilon"},
          .constants = [](const recipe::Recipe::Optim& o) { return RuleConstants{.beta1 = o.momentum}; },
          .state = [](const Shape& of) { return element_state({"m"}, of); },
          .needs_whole = [](const Shape&) { return true; },
          .whole = update,
          .scratch = [](const Shape& of, const kernels::Kernels& kernels) { return Places(of, kernels).end; },
          .whole_on_gpu = true,
          .takes = [](const ParamTraits& p) { return p.shape.rank() == 2 && !p.table; },
          .rest = "adamw"};
}

}  // namespace lockstep::optim
