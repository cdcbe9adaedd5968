// Attention of sequences that are computed in pieces (batch.sequence_strands = Q). Chunk c of the queries
// meets chunks 0 to c of the keys in that order, whichever rank does it; what the queries of a piece add to
// the gradients of keys and values is one addend, and the pieces' addends are summed over one balanced tree.
// Context ranks have the queries of their pieces and the keys and values of all, or all tokens of some heads.
#include <fmt/format.h>

#include "lockstep/model/segments/parts.h"

namespace lockstep::model {

namespace {

// "split": q, k and v of a row of "qkv" as edges of their own.
class Split : public Segment {
 public:
  explicit Split(AttentionOptions options) : o_(std::move(options)) {
    o_.heads /= o_.parts.tensor;
    o_.kv_heads /= o_.parts.tensor;
    if (!o_.rope) return;
    o_.rope->heads = o_.heads;
    o_.rope->kv_heads = o_.kv_heads;
  }
  std::string name() const override { return "split"; }

  std::vector<BufferSpec> buffers() const override {
    if (!o_.rope) return {};
    return {rope_buffer(*o_.rope)};
  }
  void fill_buffers(const std::vector<Tensor>& tables, int64_t length) const override {
    if (o_.rope) fill_rope_table(*o_.rope, length, tables[0].as<float>());
  }

  SegmentPlan plan(const SliceShape& shape, const kernels::Kernels&) const override {
    SegmentPlan plan;
    plan.inputs = {"qkv"};
    for (const Columns& c : columns()) {
      plan.outputs.push_back({c.edge, o_.type, {shape.tokens(), c.width}});
      plan.input_needs.push_back(std::string("dout.") + c.edge);
      if (o_.parts.context == 1) continue;
      if (o_.parts.heads) {
        plan.seams.emplace_back(c.edge, Seam::to_heads);
      } else if (c.first > 0) {
        plan.seams.emplace_back(c.edge, Seam::gather_pieces);
      }
    }
    if (o_.rope && o_.rope->documents) {
      plan.batch = {"documents"};
      plan.input_needs.push_back("batch.documents");
    }
    return plan;
  }

  void forward(const Frame& f) const override {
    for (const Columns& c : columns())
      copy(f, f.out(c.edge).as<char>(), c.width, f.in("qkv").as<char>() + bytes(c.first), row(), c.width);
  }
  void backward_input(const Frame& f) const override {
    const Tensor dqkv = f.din("qkv");
    for (const Columns& c : columns())
      copy(f, dqkv.as<char>() + bytes(c.first), row(), f.dout(c.edge).as<char>(), c.width, c.width);
    if (o_.rope) rotate(f, *o_.rope, dqkv, true);
  }

  Cost cost(const SliceShape& shape, Part part) const override {
    Cost cost;
    if (part != Part::backward_weight) cost.bytes = 2 * shape.tokens() * bytes(row());
    return cost;
  }

 private:
  struct Columns {
    const char* edge;
    int64_t first, width;
  };
  std::vector<Columns> columns() const {
    const int64_t q = o_.heads * o_.head_dim, kv = o_.kv_heads * o_.head_dim;
    return {{"q", 0, q}, {"k", q, kv}, {"v", q + kv, kv}};
  }
  int64_t row() const { return (o_.heads + 2 * o_.kv_heads) * o_.head_dim; }
  int64_t bytes(int64_t elements) const { return elements * device::size_of(o_.type); }
  void copy(const Frame& f, char* to, int64_t to_row, const char* from, int64_t from_row,
            int64_t width) const {
    f.device->copy_rows(to, bytes(to_row), from, bytes(from_row), bytes(width), f.slice.tokens(),
                        f.launch.stream);
  }

  AttentionOptions o_;
};

class SequenceAttention : public Segment {
 public:
  explicit SequenceAttention(AttentionOptions options) : o_(std::move(options)) {
    const Parts& p = o_.parts;
    all_tokens_ = p.heads || p.context == 1;
    const int dealt = p.tensor * (p.heads ? p.context : 1);
    o_.heads /= dealt;
    o_.kv_heads /= dealt;
  }
  std::string name() const override { return "attention"; }
  bool joins_pieces() const override { return true; }

  SegmentPlan plan(const SliceShape& shape, const kernels::Kernels& kernels) const override {
    const Sizes s(*this, shape);
    const Shape row_values{s.q_rows * o_.heads};
    SegmentPlan plan;
    plan.inputs = {"q", "k", "v"};
    plan.outputs = {{"context", o_.type, {s.q_rows, q_width()}}};
    plan.saves = {{"lse", DType::f32, row_values}};
    plan.input_needs = {"in.q", "in.k", "in.v", "out.context", "save.lse", "dout.context"};
    if (o_.documents) {
      plan.batch = {all_tokens_ && o_.parts.context > 1 ? "whole_documents" : "documents"};
      plan.input_needs.push_back("batch." + plan.batch[0]);
    }
    plan.scratch = {{Part::forward, {"merged", DType::f32, {s.q_rows, q_width()}}},
                    {Part::backward_input, {"dq", DType::f32, {s.q_rows, q_width()}}},
                    {Part::backward_input, {"delta", DType::f32, row_values}}};
    for (int piece = 0; piece < pieces(); ++piece) {
      for (const char* what : {"dk", "dv"})
        plan.scratch.push_back(
            {Part::backward_input, {addend(what, piece), DType::f32, {s.kv_rows, kv_width()}}});
    }
    if (!all_tokens_) plan.wide_gradients = {"k", "v"};
    if (o_.parts.context > 1 && o_.parts.heads) plan.seams = {{"context", Seam::to_tokens}};
    plan.workspace = kernels.attention_part_workspace(chunks(s, false));
    return plan;
  }

  void forward(const Frame& f) const override {
    const Tensor merged = f.scratch("merged");
    each_pair(f, [&](const Pair& pair) {
      f.kernels->attention_part({.shape = pair.shape,
                                 .q = row(f.in("q"), pair.q_row),
                                 .k = row(f.in("k"), pair.kv_row),
                                 .v = row(f.in("v"), pair.kv_row),
                                 .out = merged.as<float>() + pair.q_row * q_width(),
                                 .lse = f.saved("lse").as<float>() + pair.q_row * o_.heads,
                                 .first = pair.first,
                                 .documents = pair.documents},
                                f.launch);
    });
    f.kernels->cast({DType::f32, o_.type, merged.numel(), merged.data, f.out("context").data}, f.launch);
  }

  void backward_input(const Frame& f) const override {
    const Sizes s(*this, {f.slice.samples, f.slice.seq_len});
    const Tensor dq = f.scratch("dq"), delta = f.scratch("delta");
    clear(f, dq);
    for (int piece = 0; piece < pieces(); ++piece) {
      clear(f, f.scratch(addend("dk", piece)));
      clear(f, f.scratch(addend("dv", piece)));
    }
    f.kernels->attention_delta({.type = o_.type,
                                .samples = s.q_rows / s.chunk,
                                .q_len = s.chunk,
                                .heads = o_.heads,
                                .head_dim = o_.head_dim,
                                .out = f.out("context").data,
                                .dout = f.dout("context").data,
                                .delta = delta.as<float>()},
                               f.launch);
    each_pair(f, [&](const Pair& pair) {
      f.kernels->attention_part_backward(
          {.shape = pair.shape,
           .q = row(f.in("q"), pair.q_row),
           .k = row(f.in("k"), pair.kv_row),
           .v = row(f.in("v"), pair.kv_row),
           .out = row(f.out("context"), pair.q_row),
           .dout = row(f.dout("context"), pair.q_row),
           .lse = f.saved("lse").as<float>() + pair.q_row * o_.heads,
           .delta = delta.as<float>() + pair.q_row * o_.heads,
           .dq = dq.as<float>() + pair.q_row * q_width(),
           .dk = f.scratch(addend("dk", pair.piece)).as<float>() + pair.kv_row * kv_width(),
           .dv = f.scratch(addend("dv", pair.piece)).as<float>() + pair.kv_row * kv_width(),
           .dkv_stride = kv_width(),
           .documents = pair.documents},
          f.launch);
    });
    f.kernels->cast({DType::f32, o_.type, dq.numel(), dq.data, f.din("q").data}, f.launch);
    sum(f, "dk", f.din("k"));
    sum(f, "dv", f.din("v"));
  }

  std::string numerics(const SliceShape& shape, const kernels::Kernels& kernels) const override {
    return "attention in parts " + kernels.attention_part_engine(chunks(Sizes(*this, shape), true));
  }

  Cost cost(const SliceShape& shape, Part part) const override {
    Cost cost;
    if (part == Part::backward_weight) return cost;
    const Sizes s(*this, shape);
    const int all = o_.parts.sequence_strands;
    const double pairs = attended_pairs(2 * all * s.chunk, o_.scores) * pieces() / all;
    cost.attention_flops = 2.0 * pairs * static_cast<double>(s.samples * o_.heads * o_.head_dim) *
                           (part == Part::forward ? 2 : 5);
    cost.attention_length = s.chunk;
    cost.attention_head = o_.head_dim;
    cost.bytes =
        (2 * s.q_rows * o_.heads + 2 * s.kv_rows * o_.kv_heads) * o_.head_dim * device::size_of(o_.type);
    return cost;
  }

 private:
  struct Sizes {
    // A rank's runs: a front and a back chunk for each sample and each of its pieces.
    Sizes(const SequenceAttention& of, const SliceShape& shape)
        : samples(shape.samples / (2 * of.o_.parts.pieces_here())),
          chunk(shape.seq_len),
          kv_rows(shape.tokens() * of.o_.parts.context),
          q_rows(of.all_tokens_ ? kv_rows : shape.tokens()) {}
    int64_t samples, chunk, kv_rows, q_rows;
  };
  // A chunk of queries and one of keys.
  struct Pair {
    int piece = 0;  // of those whose queries are here
    int64_t q_row = 0, kv_row = 0;
    kernels::AttentionPartShape shape;
    kernels::PartDocuments documents;
    bool first = false;
  };

  int64_t q_width() const { return o_.heads * o_.head_dim; }
  int64_t kv_width() const { return o_.kv_heads * o_.head_dim; }
  // Those whose queries are here.
  int pieces() const { return all_tokens_ ? o_.parts.sequence_strands : o_.parts.pieces_here(); }
  int first_piece() const { return all_tokens_ ? 0 : o_.parts.first_piece(); }
  static std::string addend(const char* what, int piece) { return fmt::format("{}.{}", what, piece); }
  static const void* row(const Tensor& values, int64_t number) {
    return values.as<char>() + number * values.shape[1] * device::size_of(values.dtype);
  }

  template <class Visit>
  void each_pair(const Frame& f, Visit visit) const {
    const Sizes s(*this, {f.slice.samples, f.slice.seq_len});
    const int chunks_of_all = 2 * o_.parts.sequence_strands, begin = first_piece();
    const int64_t rows = s.samples * s.chunk;  // of a chunk
    for (int piece = 0; piece < pieces(); ++piece) {
      for (const int half : {0, 1}) {
        const int number = half == 0 ? begin + piece : chunks_of_all - 1 - begin - piece;
        for (int key = 0; key <= number; ++key) {
          const int place = key < chunks_of_all / 2 ? 2 * key : 2 * (chunks_of_all - 1 - key) + 1;
          Pair pair{.piece = piece,
                    .q_row = (2 * piece + half) * rows,
                    .kv_row = place * rows,
                    .shape = chunks(s, key == number),
                    .first = key == 0};
          pair.shape.distance = (number - key) * s.chunk;
          if (o_.documents) pair.documents = {f.documents().begins + pair.q_row, key * s.chunk};
          if (pair.first || pair.shape.sees_anything()) visit(pair);
        }
      }
    }
  }

  kernels::AttentionPartShape chunks(const Sizes& s, bool causal) const {
    return {.type = o_.type,
            .samples = s.samples,
            .q_len = s.chunk,
            .kv_len = s.chunk,
            .heads = o_.heads,
            .kv_heads = o_.kv_heads,
            .head_dim = o_.head_dim,
            .causal = causal,
            .q_stride = q_width(),
            .kv_stride = kv_width(),
            .scores = o_.scores,
            .kept_apart = o_.documents};
  }

  void clear(const Frame& f, const Tensor& values) const {
    f.kernels->fill_value({values.numel(), values.as<float>(), 0.0f}, f.launch);
  }
  void sum(const Frame& f, const char* what, const Tensor& to) const {
    kernels::SumAddends op{
        .in = DType::f32, .out = to.dtype, .count = to.numel(), .inputs = pieces(), .to = to.data};
    for (int piece = 0; piece < pieces(); ++piece) op.from[piece] = f.scratch(addend(what, piece)).data;
    f.kernels->sum_addends(op, f.launch);
  }

  AttentionOptions o_;
  bool all_tokens_;  // queries of all pieces are here
};

}  // namespace

std::unique_ptr<Segment> make_split(AttentionOptions options) {
  return std::make_unique<Split>(std::move(options));
}
std::unique_ptr<Segment> make_sequence_attention(AttentionOptions options) {
  return std::make_unique<SequenceAttention>(std::move(options));
}

}  // namespace lockstep::model
