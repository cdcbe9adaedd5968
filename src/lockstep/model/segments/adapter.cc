#include "lockstep/model/segments/adapter.h"

#include <algorithm>
#include <cmath>

#include "lockstep/base/hash.h"
#include "lockstep/model/adapters.h"
#include "lockstep/model/segments/parts.h"

namespace lockstep::model {

namespace {

constexpr const char* kHidden = "lora_h";
constexpr const char* kHiddenGradient = "lora_dh";
constexpr const char* kDropped = "lora_x";
constexpr const char* kInputGradient = "lora_dx";

std::string key_a(size_t k) { return "lora_A" + std::to_string(k); }
std::string key_b(size_t k) { return "lora_B" + std::to_string(k); }

const void* at(const void* values, int64_t element, DType type) {
  return static_cast<const char*>(values) + element * device::size_of(type);
}
void* at(void* values, int64_t element, DType type) {
  return static_cast<char*>(values) + element * device::size_of(type);
}

// The products, without their operands. h, the gradient of x and that of A are for all adapters at once.
kernels::Gemm hidden_product(const MapAdapters& a, int64_t rows) {
  return {.m = rows,
          .n = a.width(),
          .k = a.in,
          .in_type = a.type,
          .out_type = a.type,
          .trans_b = true,
          .alpha = a.scale};
}

kernels::Gemm output_product(const MapAdapters& a, const MapAdapters::One& one, int64_t rows) {
  return {.m = rows,
          .n = one.out,
          .k = a.rank,
          .in_type = a.type,
          .out_type = a.type,
          .trans_b = true,
          .a_row = a.width(),
          .c_row = a.row_of_y,
          .beta = 1};
}

kernels::Gemm hidden_gradient_product(const MapAdapters& a, const MapAdapters::One& one, int64_t rows) {
  return {.m = rows,
          .n = a.rank,
          .k = one.out,
          .in_type = a.type,
          .out_type = a.type,
          .a_row = a.row_of_y,
          .c_row = a.width(),
          .alpha = a.scale};
}

kernels::Gemm input_gradient_product(const MapAdapters& a, int64_t rows) {
  return {.m = rows,
          .n = a.in,
          .k = a.width(),
          .in_type = a.type,
          .out_type = a.type,
          .beta = a.dropout > 0 ? 0.0f : 1.0f};
}

kernels::Gemm gradient_of_a(const MapAdapters& a, int64_t rows) {
  return {.m = a.width(), .n = a.in, .k = rows, .in_type = a.type, .out_type = DType::f32, .trans_a = true};
}

kernels::Gemm gradient_of_b(const MapAdapters& a, const MapAdapters::One& one, int64_t rows) {
  return {.m = one.out,
          .n = a.rank,
          .k = rows,
          .in_type = a.type,
          .out_type = DType::f32,
          .trans_a = true,
          .a_row = a.row_of_y,
          .b_row = a.width()};
}

}  // namespace

MapAdapters MapAdapters::of(const AdapterOptions& options, int64_t in, int64_t row_of_y, DType type) {
  MapAdapters adapters;
  adapters.in = in;
  adapters.row_of_y = row_of_y;
  adapters.type = type;
  adapters.rank = options.rank;
  adapters.scale = options.scale;
  adapters.dropout = options.dropout;
  return adapters;
}

// A begins as PEFT's does, Kaiming's uniform values with a = sqrt(5), and B with zeros: the model begins as
// it was.
std::vector<ParamSpec> MapAdapters::params() const {
  std::vector<ParamSpec> specs;
  const auto whole_in = static_cast<float>(in * input_cut.parts);
  for (size_t k = 0; k < all.size(); ++k) {
    specs.push_back({.key = key_a(k),
                     .name = all[k].map + kAdapterA,
                     .shape = {rank, in},
                     .init = {Init::Kind::uniform, 1 / std::sqrt(whole_in)},
                     .cut = input_cut,
                     .partial = shared && !input_cut.cuts(),
                     .joined = k > 0,
                     .adapter = true});
  }
  for (size_t k = 0; k < all.size(); ++k) {
    specs.push_back({.key = key_b(k),
                     .name = all[k].map + kAdapterB,
                     .shape = {all[k].out, rank},
                     .cut = all[k].cut,
                     .partial = shared && !all[k].cut.cuts(),
                     .adapter = true});
  }
  return specs;
}

void MapAdapters::add_to(SegmentPlan& plan, int64_t rows) const {
  plan.saves.push_back({kHidden, type, {rows, width()}});
  plan.leaves.push_back({kHiddenGradient, type, {rows, width()}});
  plan.weight_needs.push_back(std::string("save.") + kHidden);
  plan.weight_needs.push_back(std::string("left.") + kHiddenGradient);
  if (dropout == 0) return;
  for (const Part part : {Part::forward, Part::backward_weight})
    plan.scratch.push_back({part, {kDropped, type, {rows, in}}});
  plan.scratch.push_back({Part::backward_input, {kInputGradient, type, {rows, in}}});
}

bool MapAdapters::drops(const Frame& f) const { return dropout > 0 && f.slice.training; }

void MapAdapters::drop(const Frame& f, const void* x, void* y) const {
  // Sites of the model's own dropout are small numbers.
  const auto site = static_cast<uint32_t>(base::hash_text(all.front().map)) | 0x80000000u;
  model::drop(f, {dropout, site}, type, in, x, y, input_cut.cuts() ? input_cut : Cut{});
}

// What the products read in the map's place of x.
const void* MapAdapters::dropped(const Frame& f, const void* x) const {
  if (!drops(f)) return x;
  void* const kept = f.scratch(kDropped).data;
  drop(f, x, kept);
  return kept;
}

void MapAdapters::forward(const Frame& f, const void* x, void* y, int64_t rows) const {
  const Tensor hidden = f.saved(kHidden);
  kernels::Gemm g = hidden_product(*this, rows);
  g.a = dropped(f, x);
  g.b = f.weight(key_a(0)).data;
  g.c = hidden.data;
  f.kernels->gemm(g, f.launch);
  for (size_t k = 0; k < all.size(); ++k) {
    g = output_product(*this, all[k], rows);
    g.a = at(hidden.data, static_cast<int64_t>(k) * rank, type);
    g.b = f.weight(key_b(k)).data;
    g.c = at(y, all[k].at, type);
    f.kernels->gemm(g, f.launch);
  }
}

void MapAdapters::backward_input(const Frame& f, const void* dy, void* dx, int64_t rows) const {
  const Tensor dhidden = f.left(kHiddenGradient);
  for (size_t k = 0; k < all.size(); ++k) {
    kernels::Gemm g = hidden_gradient_product(*this, all[k], rows);
    g.a = at(dy, all[k].at, type);
    g.b = f.weight(key_b(k)).data;
    g.c = at(dhidden.data, static_cast<int64_t>(k) * rank, type);
    f.kernels->gemm(g, f.launch);
  }
  kernels::Gemm g = input_gradient_product(*this, rows);
  g.a = dhidden.data;
  g.b = f.weight(key_a(0)).data;
  g.c = dropout > 0 ? f.scratch(kInputGradient).data : dx;
  f.kernels->gemm(g, f.launch);
  if (dropout == 0) return;
  drop(f, g.c, g.c);
  f.kernels->add_edges({type, rows * in, dx, g.c, dx}, f.launch);
}

void MapAdapters::backward_weight(const Frame& f, const void* x, const void* dy, int64_t rows) const {
  const float beta = f.accumulate ? 1.0f : 0.0f;
  if (f.trains(key_a(0))) {
    kernels::Gemm g = gradient_of_a(*this, rows);
    g.a = f.left(kHiddenGradient).data;
    g.b = dropped(f, x);
    g.c = f.grad(key_a(0)).data;
    g.beta = beta;
    f.kernels->gemm(g, f.launch);
  }
  for (size_t k = 0; k < all.size(); ++k) {
    if (!f.trains(key_b(k))) continue;
    kernels::Gemm g = gradient_of_b(*this, all[k], rows);
    g.a = at(dy, all[k].at, type);
    g.b = at(f.saved(kHidden).data, static_cast<int64_t>(k) * rank, type);
    g.c = f.grad(key_b(k)).data;
    g.beta = beta;
    f.kernels->gemm(g, f.launch);
  }
}

int64_t MapAdapters::workspace(int64_t rows, const kernels::Kernels& kernels) const {
  std::vector<kernels::Gemm> products = {hidden_product(*this, rows), input_gradient_product(*this, rows),
                                         gradient_of_a(*this, rows)};
  for (const One& one : all) {
    products.push_back(output_product(*this, one, rows));
    products.push_back(hidden_gradient_product(*this, one, rows));
    products.push_back(gradient_of_b(*this, one, rows));
  }
  int64_t bytes = 0;
  for (const kernels::Gemm& g : products) bytes = std::max(bytes, kernels.gemm_workspace(g));
  return bytes;
}

// Each of the three parts has one product with A and one with every B.
void MapAdapters::add_cost(Cost& cost, int64_t rows, Part part) const {
  const auto add = [&](int64_t m, int64_t n, int64_t k) { cost.products.push_back({m, n, k}); };
  part == Part::forward          ? add(rows, width(), in)
  : part == Part::backward_input ? add(rows, in, width())
                                 : add(width(), in, rows);
  for (const One& one : all) {
    part == Part::forward          ? add(rows, one.out, rank)
    : part == Part::backward_input ? add(rows, rank, one.out)
                                   : add(one.out, rank, rows);
  }
}

}  // namespace lockstep::model
