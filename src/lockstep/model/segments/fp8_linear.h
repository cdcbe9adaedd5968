// The fp8 half of a linear map: its copies as values of a plan, the casts, and the three products.
#pragma once

#include "lockstep/model/segments/linear.h"

namespace lockstep::model {

void add_fp8_values(const LinearMap& map, SegmentPlan& plan, int64_t rows);
void fp8_prepare(const LinearMap& map, const Frame& f);
void fp8_forward(const LinearMap& map, const Frame& f, const void* x, const void* bias, void* y, int64_t rows,
                 const float* amax);
void fp8_backward_input(const LinearMap& map, const Frame& f, const void* dy, void* dx, int64_t rows,
                        const float* amax);
void fp8_backward_weight(const LinearMap& map, const Frame& f, void* dweight, int64_t rows, bool accumulate);
int64_t fp8_workspace(const LinearMap& map, int64_t rows, const kernels::Kernels& kernels);
int64_t fp8_cast_bytes(const LinearMap& map, int64_t rows, Part part);  // that the casts of a part move

}  // namespace lockstep::model
