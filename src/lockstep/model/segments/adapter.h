// The adapters of one linear map (LoRA): thin matrices A and B whose product is added to what the map gives.
//
// h = scale * drop(x) A^T, [rows, rank], and y += h B^T. Maps that lie side by side (Llama's q, k and v) have
// an A and a B each; their A lie one behind the other in memory, so that one product makes every h. Where
// tensor ranks hold parts of the outputs, A is whole on each of them and its gradients are addends; where
// they hold parts of the inputs, A is cut, B is whole and what each rank adds to y is an addend, as the map's
// own is: no layout needs another collective.
#pragma once

#include <string>
#include <vector>

#include "lockstep/kernels/table.h"
#include "lockstep/model/block.h"

namespace lockstep::model {

struct MapAdapters {
  struct One {
    std::string map;          // canonical, without ".weight"
    int64_t at = 0, out = 0;  // columns of y that it adds to
    Cut cut = {};             // of the map's outputs among tensor ranks
  };
  std::vector<One> all;
  int64_t in = 0, row_of_y = 0;  // of what this rank holds
  DType type = DType::f32;
  int64_t rank = 0;
  float scale = 1, dropout = 0;
  Cut input_cut = {};   // where tensor ranks hold parts of the inputs
  bool shared = false;  // several tensor ranks: what is not cut gets addends from each

  // For maps from `in` columns, with what the recipe says; adapters are added one by one.
  static MapAdapters of(const AdapterOptions& options, int64_t in, int64_t row_of_y, DType type);
  int64_t width() const { return rank * static_cast<int64_t>(all.size()); }

  std::vector<ParamSpec> params() const;
  // What the parts keep; `x` and `dy` as the plan names them are kept by the map already.
  void add_to(SegmentPlan& plan, int64_t rows) const;
  void forward(const Frame& f, const void* x, void* y, int64_t rows) const;           // adds to y
  void backward_input(const Frame& f, const void* dy, void* dx, int64_t rows) const;  // adds to dx
  void backward_weight(const Frame& f, const void* x, const void* dy, int64_t rows) const;
  int64_t workspace(int64_t rows, const kernels::Kernels& kernels) const;
  void add_cost(Cost& cost, int64_t rows, Part part) const;

 private:
  const void* dropped(const Frame& f, const void* x) const;
  void drop(const Frame& f, const void* x, void* y) const;
  bool drops(const Frame& f) const;
};

}  // namespace lockstep::model
