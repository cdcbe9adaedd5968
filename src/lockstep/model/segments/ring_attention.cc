// Attention in a ring: every context rank holds the queries, keys and values of a front run and a back run of
// each sequence (chunks r and 2n-1-r of 2n), and keys and values go round. Each pair of chunks is causal,
// whole or empty, and every rank has the same number of them: the work is balanced.
#include <algorithm>
#include <array>

#include "lockstep/model/segments/parts.h"

namespace lockstep::model {

namespace {

class RingAttention : public Segment {
 public:
  explicit RingAttention(AttentionOptions options) : o_(std::move(options)) {
    o_.heads /= o_.parts.tensor;
    o_.kv_heads /= o_.parts.tensor;
    if (!o_.rope) return;
    o_.rope->heads = o_.heads;
    o_.rope->kv_heads = o_.kv_heads;
  }
  std::string name() const override { return "attention"; }

  std::vector<BufferSpec> buffers() const override {
    if (!o_.rope) return {};
    return {rope_buffer(*o_.rope)};
  }
  void fill_buffers(const std::vector<Tensor>& tables, int64_t length) const override {
    if (o_.rope) fill_rope_table(*o_.rope, length, tables[0].as<float>());
  }

  SegmentPlan plan(const SliceShape& shape, const kernels::Kernels& kernels) const override {
    const int64_t tokens = shape.tokens();
    const Shape row_values{shape.samples, o_.heads, shape.seq_len};
    SegmentPlan plan;
    plan.inputs = {"qkv"};
    plan.outputs = {{"context", o_.type, {tokens, q_width()}}};
    plan.saves = {{"lse", DType::f32, row_values}};
    plan.input_needs = {"in.qkv", "out.context", "save.lse", "dout.context"};
    if (o_.documents) {
      plan.batch = {"documents"};
      plan.input_needs.push_back("batch.documents");
    }
    plan.ring = Ring{.parts = o_.parts.context + 1,
                     .travels = {{"kv", o_.type, {tokens, 2 * kv_width()}}},
                     .gradients = {{"kv", DType::f32, {tokens, 2 * kv_width()}}},
                     .across = {{"merged", DType::f32, {tokens, q_width()}}},
                     .back = {{"dq", DType::f32, {tokens, q_width()}}, {"delta", DType::f32, row_values}}};
    plan.workspace = kernels.attention_part_workspace(shape_of(shape.samples, shape.seq_len, false));
    if (o_.type != DType::f32) {
      const int64_t widest = std::max(q_width(), 2 * kv_width());
      plan.scratch.push_back({Part::backward_input, {"rounded", o_.type, {tokens, widest}}});
    }
    return plan;
  }

  void forward(const Frame& f) const override {
    if (f.part == 0) return pack(f);
    each_pair(f, [&](const Pair& pair) {
      f.kernels->attention_part({.shape = pair.shape,
                                 .q = row(f.in("qkv").data, pair.q_row, qkv_width()),
                                 .k = row(f.ring("kv").data, pair.kv_row, 2 * kv_width()),
                                 .v = value_of(row(f.ring("kv").data, pair.kv_row, 2 * kv_width())),
                                 .out = f.across("merged").as<float>() + pair.q_row * q_width(),
                                 .lse = f.saved("lse").as<float>() + pair.q_row * o_.heads,
                                 .first = pair.first,
                                 .documents = pair.documents},
                                f.launch);
    });
    if (f.part < o_.parts.context) return;
    const Tensor merged = f.across("merged");
    f.kernels->cast({DType::f32, o_.type, merged.numel(), merged.data, f.out("context").data}, f.launch);
  }

  void backward_input(const Frame& f) const override {
    if (f.part == 0) return unpack(f);
    const Tensor kv = f.ring("kv"), dkv = f.ring_gradient("kv");
    if (f.part == o_.parts.context) {
      clear(f, f.across("dq"));
      clear(f, dkv);
      f.kernels->attention_delta({.type = o_.type,
                                  .samples = f.slice.samples,
                                  .q_len = f.slice.seq_len,
                                  .heads = o_.heads,
                                  .head_dim = o_.head_dim,
                                  .out = f.out("context").data,
                                  .dout = f.dout("context").data,
                                  .delta = f.across("delta").as<float>()},
                                 f.launch);
    }
    each_pair(f, [&](const Pair& pair) {
      float* dk = dkv.as<float>() + pair.kv_row * 2 * kv_width();
      f.kernels->attention_part_backward({.shape = pair.shape,
                                          .q = row(f.in("qkv").data, pair.q_row, qkv_width()),
                                          .k = row(kv.data, pair.kv_row, 2 * kv_width()),
                                          .v = value_of(row(kv.data, pair.kv_row, 2 * kv_width())),
                                          .out = row(f.out("context").data, pair.q_row, q_width()),
                                          .dout = row(f.dout("context").data, pair.q_row, q_width()),
                                          .lse = f.saved("lse").as<float>() + pair.q_row * o_.heads,
                                          .delta = f.across("delta").as<float>() + pair.q_row * o_.heads,
                                          .dq = f.across("dq").as<float>() + pair.q_row * q_width(),
                                          .dk = dk,
                                          .dv = dk + kv_width(),
                                          .dkv_stride = 2 * kv_width(),
                                          .documents = pair.documents},
                                         f.launch);
    });
  }

  std::string numerics(const SliceShape& shape, const kernels::Kernels& kernels) const override {
    return "attention in parts " +
           kernels.attention_part_engine(shape_of(shape.samples, shape.seq_len, true));
  }

  Cost cost(const SliceShape& shape, Part part) const override {
    Cost cost;
    if (part == Part::backward_weight) return cost;
    // Of the causal half of the whole sequence, this rank's shard.
    const double pairs = attended_pairs(shape.seq_len * 2 * o_.parts.context, o_.scores) / o_.parts.context *
                         static_cast<double>(shape.samples) / 2;
    cost.attention_flops =
        2.0 * pairs * static_cast<double>(o_.heads * o_.head_dim) * (part == Part::forward ? 2 : 5);
    cost.attention_length = shape.seq_len;
    cost.attention_head = o_.head_dim;
    cost.bytes = shape.tokens() * (2 * o_.heads + 2 * o_.kv_heads) * o_.head_dim * device::size_of(o_.type);
    return cost;
  }

 private:
  int64_t q_width() const { return o_.heads * o_.head_dim; }
  int64_t kv_width() const { return o_.kv_heads * o_.head_dim; }
  int64_t qkv_width() const { return q_width() + 2 * kv_width(); }
  void* row(void* values, int64_t number, int64_t width) const {
    return static_cast<char*>(values) + number * width * device::size_of(o_.type);
  }
  const void* value_of(const void* key) const {
    return static_cast<const char*>(key) + kv_width() * device::size_of(o_.type);
  }

  // A chunk of this rank's queries and one of the keys that are here.
  struct Pair {
    int64_t q_row = 0, kv_row = 0;
    kernels::AttentionPartShape shape;
    kernels::PartDocuments documents;
    bool first = false;  // nothing was merged into these queries yet
  };

  // Those of part k, whose keys rank - (k - 1) made. Chunk i of the queries meets chunks j <= i of the keys.
  // Part 1 has this rank's own keys: every chunk of queries meets the front one first.
  template <class Visit>
  void each_pair(const Frame& f, Visit visit) const {
    const int ranks = o_.parts.context, self = o_.parts.context_rank;
    const int from = (self - (f.part - 1) + ranks) % ranks;
    const std::array<int, 2> mine = {self, 2 * ranks - 1 - self}, theirs = {from, 2 * ranks - 1 - from};
    const int64_t half = f.slice.tokens() / 2;
    for (size_t q = 0; q < 2; ++q) {
      for (size_t k = 0; k < 2; ++k) {
        if (theirs[k] > mine[q]) continue;
        Pair pair{.q_row = static_cast<int64_t>(q) * half,
                  .kv_row = static_cast<int64_t>(k) * half,
                  .shape = shape_of(f.slice.samples, f.slice.seq_len, theirs[k] == mine[q]),
                  .first = f.part == 1 && k == 0};
        pair.shape.distance = (mine[q] - theirs[k]) * f.slice.seq_len;
        if (o_.documents) pair.documents = {f.documents().begins + pair.q_row, theirs[k] * f.slice.seq_len};
        if (pair.first || pair.shape.sees_anything()) visit(pair);
      }
    }
  }

  // Keys and values on their own, to travel.
  void pack(const Frame& f) const {
    const int64_t element = device::size_of(o_.type), width = 2 * kv_width() * element;
    f.device->copy_rows(f.ring("kv").data, width, f.in("qkv").as<char>() + q_width() * element,
                        qkv_width() * element, width, f.slice.tokens(), f.launch.stream);
  }

  void clear(const Frame& f, const Tensor& values) const {
    f.kernels->fill_value({values.numel(), values.as<float>(), 0.0f}, f.launch);
  }

  // Gradients of queries, and of the keys and values that have come home, side by side.
  void unpack(const Frame& f) const {
    const Tensor dqkv = f.din("qkv");
    place(f, f.across("dq"), q_width(), 0);
    place(f, f.ring_gradient("kv"), 2 * kv_width(), q_width());
    if (o_.rope) rotate(f, *o_.rope, dqkv, true);
  }
  void place(const Frame& f, const Tensor& from, int64_t width, int64_t column) const {
    const int64_t element = device::size_of(o_.type);
    const void* rounded = from.data;
    if (o_.type != DType::f32) {
      rounded = f.scratch("rounded").data;
      f.kernels->cast({DType::f32, o_.type, from.numel(), from.data, f.scratch("rounded").data}, f.launch);
    }
    f.device->copy_rows(f.din("qkv").as<char>() + column * element, qkv_width() * element, rounded,
                        width * element, width * element, f.slice.tokens(), f.launch.stream);
  }

  // Of the front or of the back runs.
  kernels::AttentionPartShape shape_of(int64_t runs, int64_t length, bool causal) const {
    return {.type = o_.type,
            .samples = runs / 2,
            .q_len = length,
            .kv_len = length,
            .heads = o_.heads,
            .kv_heads = o_.kv_heads,
            .head_dim = o_.head_dim,
            .causal = causal,
            .q_stride = qkv_width(),
            .kv_stride = 2 * kv_width(),
            .scores = o_.scores,
            .kept_apart = o_.documents};
  }

  AttentionOptions o_;
};

}  // namespace

std::unique_ptr<Segment> make_ring_attention(AttentionOptions options) {
  return std::make_unique<RingAttention>(std::move(options));
}

}  // namespace lockstep::model
