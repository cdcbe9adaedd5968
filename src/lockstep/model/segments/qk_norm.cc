#include "lockstep/model/segments/norm_linear.h"
#include "lockstep/model/segments/strands.h"

namespace lockstep::model {

namespace {

constexpr const char* kSquares = "squares";  // of q and of k: two sums a token

// How the runs that are normalised lie in what a rank holds. Where tensor ranks share runs, their sums of
// squares are added up between two segments.
struct Runs {
  QkNormOptions o;  // of this rank
  explicit Runs(QkNormOptions options) : o(std::move(options)) {
    o.heads /= o.parts.tensor;
    o.kv_heads /= o.parts.tensor;
    if (!o.rope) return;
    o.rope->heads = o.heads;
    o.rope->kv_heads = o.kv_heads;
  }
  bool shared() const { return o.whole && o.parts.tensor > 1; }
  int64_t q_width() const { return o.heads * o.head_dim; }
  int64_t kv_width() const { return o.kv_heads * o.head_dim; }
  int64_t row() const { return q_width() + 2 * kv_width(); }
  int64_t q_run() const { return o.whole ? q_width() : o.head_dim; }
  int64_t k_run() const { return o.whole ? kv_width() : o.head_dim; }
  kernels::HeadRuns sizes(int64_t rows) const {
    return {.type = o.type,
            .rows = rows,
            .q_runs = o.whole ? 1 : o.heads,
            .q_width = q_run(),
            .k_runs = o.whole ? 1 : o.kv_heads,
            .k_width = k_run(),
            .rest = kv_width(),
            .weight_offset = o.weight_offset,
            .q_whole = shared() ? q_width() * o.parts.tensor : 0,
            .k_whole = shared() ? kv_width() * o.parts.tensor : 0};
  }
};

// What this rank's part of q and of k adds to the sums of squares.
class QkSquares : public Segment {
 public:
  explicit QkSquares(QkNormOptions options) : runs_(std::move(options)) {}
  std::string name() const override { return "qk_squares"; }

  SegmentPlan plan(const SliceShape& shape, const kernels::Kernels&) const override {
    SegmentPlan plan;
    plan.passes = {"raw"};
    plan.outputs = {{kSquares, DType::f32, {shape.tokens(), 2}}};
    plan.seams = {{kSquares, Seam::sum_both}};
    plan.input_needs = {"in.raw", "dout.raw", "dout.squares"};
    plan.may_reuse = {{"din.raw", "dout.raw"}};
    return plan;
  }
  void forward(const Frame& f) const override {
    f.kernels->head_squares({.runs = runs_.sizes(f.slice.tokens()),
                             .x = f.in("raw").data,
                             .squares = f.out(kSquares).as<float>()},
                            f.launch);
  }
  void backward_input(const Frame& f) const override {
    f.kernels->head_squares_backward({.runs = runs_.sizes(f.slice.tokens()),
                                      .x = f.in("raw").data,
                                      .dsquares = f.dout(kSquares).as<float>(),
                                      .dpassed = f.dout("raw").data,
                                      .dx = f.din("raw").data},
                                     f.launch);
  }
  Cost cost(const SliceShape& shape, Part part) const override {
    Cost cost;
    if (part != Part::backward_weight)
      cost.bytes = shape.tokens() * runs_.row() * device::size_of(runs_.o.type);
    return cost;
  }

 private:
  Runs runs_;
};

class QkNorm : public Segment {
 public:
  explicit QkNorm(QkNormOptions options) : runs_(std::move(options)), o_(runs_.o) {}
  std::string name() const override { return "qk_norm"; }
  bool adds_gradients_once(const SliceShape&) const override { return true; }

  // One weight for all heads gets addends from every tensor rank's heads.
  std::vector<ParamSpec> params() const override {
    const auto spec = [&](const char* key, const std::string& name, int64_t width) {
      return ParamSpec{.key = key,
                       .name = name + ".weight",
                       .shape = {width},
                       .init = {o_.weight_offset == 0 ? Init::Kind::ones : Init::Kind::zeros},
                       .decay = false,
                       .cut = o_.whole ? Cut{.part = o_.parts.tensor_rank, .parts = o_.parts.tensor} : Cut{},
                       .partial = o_.parts.tensor > 1 && !o_.whole};
    };
    return {spec("q_weight", o_.q_name, runs_.q_run()), spec("k_weight", o_.k_name, runs_.k_run())};
  }

  std::vector<BufferSpec> buffers() const override {
    if (!o_.rope) return {};
    return {rope_buffer(*o_.rope)};
  }
  void fill_buffers(const std::vector<Tensor>& tables, int64_t length) const override {
    if (o_.rope) fill_rope_table(*o_.rope, length, tables[0].as<float>());
  }
  std::vector<int64_t> column_groups() const override {
    return {runs_.q_width(), runs_.kv_width(), runs_.kv_width()};
  }

  SegmentPlan plan(const SliceShape& shape, const kernels::Kernels&) const override {
    const int64_t rows = shape.tokens(), parts = kernels::row_parts(rows);
    SegmentPlan plan;
    if (o_.rope && o_.rope->documents) plan.batch = {"documents"};
    plan.inputs = {"raw"};
    if (runs_.shared()) plan.inputs.push_back(kSquares);
    plan.outputs = {{"qkv", o_.type, {rows, runs_.row()}}};
    plan.saves = {{"rstd", DType::f32, {rows, runs_.sizes(rows).runs()}}};
    plan.leaves = {{"dq_weight", DType::f32, {parts, runs_.q_run()}},
                   {"dk_weight", DType::f32, {parts, runs_.k_run()}}};
    plan.input_needs = {"in.raw", "save.rstd", "dout.qkv"};
    plan.weight_needs = {"left.dq_weight", "left.dk_weight"};
    if (o_.parts.exchanges_qkv()) plan.seams = {{"qkv", Seam::to_heads}};
    return plan;
  }

  void forward(const Frame& f) const override {
    f.kernels->head_norm({.runs = runs(f),
                          .epsilon = o_.epsilon,
                          .x = f.in("raw").data,
                          .y = f.out("qkv").data,
                          .rstd = f.saved("rstd").as<float>(),
                          .squares = runs_.shared() ? f.in(kSquares).as<float>() : nullptr},
                         f.launch);
    if (o_.rope) rotate(f, *o_.rope, f.out("qkv"), false);
  }

  // Attention has rotated the gradient back.
  void backward_input(const Frame& f) const override {
    f.kernels->head_norm_backward({.runs = runs(f),
                                   .dy = f.dout("qkv").data,
                                   .x = f.in("raw").data,
                                   .rstd = f.saved("rstd").as<float>(),
                                   .dx = f.din("raw").data,
                                   .partial_q = f.left("dq_weight").as<float>(),
                                   .partial_k = f.left("dk_weight").as<float>(),
                                   .dsquares = runs_.shared() ? f.din(kSquares).as<float>() : nullptr},
                                  f.launch);
  }

  void backward_weight(const Frame& f) const override {
    for (const std::string key : {"q_weight", "k_weight"}) {
      if (!f.trains(key)) continue;
      const Tensor sums = f.left("d" + key);
      f.kernels->norm_weight_backward({.parts = sums.shape[0],
                                       .width = sums.shape[1],
                                       .partial = sums.as<float>(),
                                       .gradient = f.grad(key).as<float>(),
                                       .accumulate = f.accumulate},
                                      f.launch);
    }
  }

  Cost cost(const SliceShape& shape, Part part) const override {
    Cost cost;
    if (part != Part::backward_weight)
      cost.bytes = 2 * shape.tokens() * runs_.row() * device::size_of(o_.type);
    return cost;
  }

 private:
  kernels::HeadRuns runs(const Frame& f) const {
    kernels::HeadRuns all = runs_.sizes(f.slice.tokens());
    all.q_weight = f.weight("q_weight").data;
    all.k_weight = f.weight("k_weight").data;
    return all;
  }
  Runs runs_;
  const QkNormOptions& o_;
};

}  // namespace

void add_qk_norm(std::vector<std::unique_ptr<Segment>>& segments, QkNormOptions options) {
  if (options.parts.fixes_products()) {
    const auto of = [&](const Parts& one) {
      QkNormOptions of_one = options;
      of_one.parts = one;
      return of_one;
    };
    StrandEdges edges;
    if (options.whole) {
      segments.push_back(in_strands(options.parts, {.summed = {kSquares}},
                                    [&](const Parts& one) { return std::make_unique<QkSquares>(of(one)); }));
      edges.shared = {{kSquares, DType::f32, 2}};
    }
    return segments.push_back(in_strands(
        options.parts, edges, [&](const Parts& one) { return std::make_unique<QkNorm>(of(one)); }));
  }
  if (options.whole && options.parts.tensor > 1) segments.push_back(std::make_unique<QkSquares>(options));
  segments.push_back(std::make_unique<QkNorm>(std::move(options)));
}

}  // namespace lockstep::model
