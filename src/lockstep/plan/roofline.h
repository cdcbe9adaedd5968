// How long a device works on an instruction, by kind of kernel.
//
// A product takes its FLOPs at the rate that large products sustain, what it takes until all units have a
// tile and run out of them, and the part of its operands' traffic that computing does not hide. Attention
// takes its FLOPs at a rate that grows with the sequence; in fp32, which tensor cores do not take, at the
// rate of plain multiply-adds, while products in fp32 may run as TF32. Everything else moves its bytes.
// Kernels run one after another, so the parts add up.
#pragma once

#include "lockstep/plan/machine.h"
#include "lockstep/program/program.h"

namespace lockstep::plan {

enum class Work : uint8_t { products, fp8_products, attention, passes, loss, update, launches };
constexpr int kWorks = 7;
const char* name_of(Work work);  // "products", "fp8 products", ...

struct WorkSeconds {
  double of[kWorks] = {};
  double& operator[](Work work) { return of[static_cast<int>(work)]; }
  double operator[](Work work) const { return of[static_cast<int>(work)]; }
  double all() const;
  void add(const WorkSeconds& other, double times = 1);
};

// Of an instruction that meets nobody.
WorkSeconds work_seconds(const Machine& machine, const program::Program& program,
                         const program::Instruction& instruction);

struct ProductShape {
  int64_t m = 0, n = 0, k = 0;
  device::DType type = device::DType::bf16;
  bool fp8 = false;       // operands; the result is of `type`
  bool wide_sum = false;  // the result is fp32: gradients of weights
};
double product_seconds(const Machine& machine, const ProductShape& shape);

struct AttentionWork {
  double flops = 0;
  int64_t length = 0, head = 0;  // tokens that a query may see at most, width of a head
  device::DType type = device::DType::bf16;
  bool backward = false;
};
double attention_seconds(const Machine& machine, const AttentionWork& work);

}  // namespace lockstep::plan
