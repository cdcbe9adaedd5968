#include "lockstep/kernels/reduce/tree_sum.h"

#include "lockstep/kernels/ops_cpu.h"

namespace lockstep::kernels::LOCKSTEP_CPU_LEVEL {
namespace {

constexpr int64_t kTile = 1024;  // elements, 4 KiB: the partial sums of a balanced tree of 64 are six
constexpr int kPartials = kTreeInputs / 2;  // at most: a partial sum has taken in two inputs
static_assert(kBlock % kTile == 0);

LS_INLINE void copy_run(const float* from, int64_t count, float* out) {
  for (int64_t i = 0; i < count; ++i) out[i] = from[i];
}

LS_INLINE void add_run(const float* a, const float* b, int64_t count, float* out) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) out[i] = a[i] + b[i];
}

LS_INLINE void add_four(const float* a, const float* b, const float* c, const float* d, int64_t count,
                        float* out) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) out[i] = (a[i] + b[i]) + (c[i] + d[i]);
}

// Whether the inputs from `first` on begin with two pairs that are joined, (a + b) + (c + d).
LS_INLINE bool are_two_pairs(const TreeSum& op, int first) {
  const uint8_t* merges = op.merges + first;
  return first + 4 <= op.inputs && merges[0] == 0 && merges[1] == 1 && merges[2] == 0 && merges[3] >= 2;
}

// One tile, whose partial sums stay in the first-level cache. Inputs are added from where they lie. Only the
// last sum writes to `out`, when every input of the tile has been read: so `out` may be one of them.
class TileSum {
 public:
  TileSum(const TreeSum& op, int64_t begin, int64_t count) : op_(op), begin_(begin), count_(count) {}

  void run() {
    int merges_left = op_.inputs - 1;
    for (int i = 0; i < op_.inputs; ++i) {
      const bool pairs = are_two_pairs(op_, i);
      if (pairs) {
        push_pairs(i);
        merges_left -= 3;
        i += 3;
      } else {
        stack_[depth_++] = {from(i), nullptr};
      }
      for (int m = pairs ? 2 : 0; m < op_.merges[i]; ++m) merge(--merges_left == 0);
    }
  }

 private:
  struct Value {
    const float* at;
    float* partial;  // where it lies when it is a partial sum, to be written over
  };

  const float* from(int input) const { return op_.from[input] + begin_; }

  void push_pairs(int i) {
    float* to = take_partial();
    add_four(from(i), from(i + 1), from(i + 2), from(i + 3), count_, to);
    stack_[depth_++] = {to, to};
  }

  void merge(bool is_last) {
    const Value b = stack_[--depth_], a = stack_[depth_ - 1];
    float* to = is_last ? op_.out + begin_ : a.partial ? a.partial : b.partial ? b.partial : take_partial();
    add_run(a.at, b.at, count_, to);
    if (a.partial && b.partial) free_[free_count_++] = b.partial;
    stack_[depth_ - 1] = {to, to};
  }

  float* take_partial() { return free_count_ > 0 ? free_[--free_count_] : partials_[used_++]; }

  const TreeSum& op_;
  const int64_t begin_, count_;
  Value stack_[kTreeInputs];
  int depth_ = 0, free_count_ = 0, used_ = 0;
  float* free_[kPartials];
  alignas(64) float partials_[kPartials][kTile];  // only those that the tree needs are ever touched
};

}  // namespace

void tree_sum(const TreeSum& op, const Launch&) {
  tree_depth(op);
  for_blocks(op.count, [&](int64_t begin, int64_t end) {
    const int64_t count = end - begin;
    const auto from = [&](int i) { return op.from[i] + begin; };
    float* out = op.out + begin;
    if (op.inputs == 1) return copy_run(from(0), count, out);
    if (op.inputs == 2) return add_run(from(0), from(1), count, out);
    if (op.inputs == 4 && are_two_pairs(op, 0))
      return add_four(from(0), from(1), from(2), from(3), count, out);
    for (int64_t first = begin; first < end; first += kTile)
      TileSum(op, first, smaller(kTile, end - first)).run();
  });
}

}  // namespace lockstep::kernels::LOCKSTEP_CPU_LEVEL
