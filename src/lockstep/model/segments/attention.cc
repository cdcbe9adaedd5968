#include "lockstep/model/segments/parts.h"
#include "lockstep/model/segments/strands.h"

namespace lockstep::model {

namespace {

class Attention : public Segment {
 public:
  // Context ranks that exchanged tokens for heads hold whole sequences here.
  explicit Attention(const AttentionOptions& options) : o_(options) {
    const int ranks = o_.parts.tensor * o_.parts.context;
    o_.heads /= ranks;
    o_.kv_heads /= ranks;
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
    SegmentPlan plan;
    const int64_t length = shape.seq_len * o_.parts.context;
    plan.inputs = {"qkv"};
    plan.outputs = {{"context", o_.type, {shape.samples * length, o_.heads * o_.head_dim}}};
    plan.saves = {{"lse", DType::f32, {shape.samples, o_.heads, length}}};
    if (o_.parts.context > 1) plan.seams = {{"context", Seam::to_tokens}};
    plan.input_needs = {"in.qkv", "out.context", "save.lse", "dout.context"};
    plan.workspace = kernels.attention_workspace(attention_shape(shape.samples, length));
    if (o_.documents) {
      plan.batch = {o_.parts.context > 1 ? "whole_documents" : "documents", "offsets"};
      for (const std::string& field : plan.batch) plan.input_needs.push_back("batch." + field);
    }
    return plan;
  }

  void forward(const Frame& f) const override {
    f.kernels->attention_forward({.shape = shape_of(f),
                                  .qkv = f.in("qkv").data,
                                  .out = f.out("context").data,
                                  .lse = f.saved("lse").as<float>(),
                                  .documents = f.documents()},
                                 f.launch);
  }

  void backward_input(const Frame& f) const override {
    f.kernels->attention_backward({.shape = shape_of(f),
                                   .qkv = f.in("qkv").data,
                                   .out = f.out("context").data,
                                   .dout = f.dout("context").data,
                                   .lse = f.saved("lse").as<float>(),
                                   .dqkv = f.din("qkv").data,
                                   .documents = f.documents()},
                                  f.launch);
    if (!o_.rope) return;
    f.kernels->rope({.shape = shape_of(f),
                     .qkv = f.din("qkv").data,
                     .table = f.buffer("rope").as<float>(),
                     .backward = true,
                     .rotary_dim = o_.rope->turned(),
                     .begins = f.documents().begins},
                    f.launch);
  }

  void decode(const Frame& f) const override {
    f.kernels->attention_decode({.shape = attention_shape(f.slice.samples, f.slice.seq_len),
                                 .slots = f.cache.slots,
                                 .capacity = f.cache.capacity,
                                 .slot_of = f.slice.slots,
                                 .positions = f.slice.positions,
                                 .qkv = f.in("qkv").data,
                                 .keys = f.cache.keys,
                                 .values = f.cache.values,
                                 .out = f.out("context").data},
                                f.launch);
  }

  std::string numerics(const SliceShape& shape, const kernels::Kernels& kernels) const override {
    const int64_t length = shape.seq_len * o_.parts.context;
    return "attention " + kernels.attention_engine(attention_shape(shape.samples, length));
  }

  Cost cost(const SliceShape& shape, Part part) const override {
    Cost cost;
    if (part == Part::backward_weight) return cost;
    // Two products over the causal half; the backward pass does five.
    const double pairs = attended_pairs(shape.seq_len * o_.parts.context, o_.scores);
    const double product = 2.0 * pairs * static_cast<double>(shape.samples * o_.heads * o_.head_dim);
    cost.attention_flops = product * (part == Part::forward ? 2 : 5);
    cost.attention_length = shape.seq_len * o_.parts.context;
    cost.attention_head = o_.head_dim;
    cost.bytes = shape.tokens() * o_.parts.context * (2 * o_.heads + 2 * o_.kv_heads) * o_.head_dim *
                 device::size_of(o_.type);
    return cost;
  }

 private:
  kernels::AttentionShape attention_shape(int64_t samples, int64_t seq_len) const {
    return {
        o_.type,     samples,     seq_len,   o_.heads,
        o_.kv_heads, o_.head_dim, o_.scores, o_.documents ? samples * kernels::most_documents(seq_len) : 0};
  }
  kernels::AttentionShape shape_of(const Frame& f) const {
    return attention_shape(f.slice.samples, f.slice.seq_len * o_.parts.context);
  }
  AttentionOptions o_;
};

}  // namespace

double attended_pairs(int64_t length, const kernels::ScoreOptions& scores) {
  const auto all = static_cast<double>(length);
  const double unseen =
      scores.window > 0 && length > scores.window ? all - static_cast<double>(scores.window) : 0;
  return all * (all + 1) / 2 - unseen * (unseen + 1) / 2;
}

namespace {

std::unique_ptr<Segment> make_attention(AttentionOptions options) {
  if (options.parts.context > 1 && !options.parts.heads) return make_ring_attention(std::move(options));
  return std::make_unique<Attention>(options);
}

}  // namespace

void add_attention(std::vector<std::unique_ptr<Segment>>& segments, const AttentionOptions& options) {
  const auto add = [&](std::unique_ptr<Segment> (*make)(AttentionOptions)) {
    if (!options.parts.fixes_products()) return segments.push_back(make(options));
    segments.push_back(in_strands(options.parts, {}, [&](const Parts& one) {
      AttentionOptions of_one = options;
      of_one.parts = one;
      return make(std::move(of_one));
    }));
  };
  if (!options.parts.fixes_sequences()) return add(make_attention);
  add(make_split);
  add(make_sequence_attention);
}

}  // namespace lockstep::model
