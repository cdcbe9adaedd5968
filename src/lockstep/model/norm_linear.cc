#include "lockstep/model/norm_linear.h"

#include "lockstep/model/norm_part.h"

namespace lockstep::model {

namespace {

class NormLinear : public Segment {
 public:
  explicit NormLinear(NormLinearOptions options)
      : options_(std::move(options)), norm_(options_.norm, options_.map.type), map_(options_.map) {}

  std::string name() const override { return options_.segment; }

  std::vector<ParamSpec> params() const override {
    std::vector<ParamSpec> specs = norm_.params();
    const Init init{Init::Kind::normal, options_.init_std};
    for (size_t i = 0; i < options_.weights.size(); ++i) {
      LinearMap part = map_;
      part.out = options_.weights[i].out;
      specs.push_back({.key = i == 0 ? "weight" : "weight" + std::to_string(i),
                       .name = options_.weights[i].name + ".weight",
                       .shape = part.weight_shape(),
                       .init = init,
                       .split = Split::columns,
                       .joined = i > 0});
    }
    if (map_.bias) {
      specs.push_back({.key = "bias",
                       .name = options_.weights[0].name + ".bias",
                       .shape = {map_.out},
                       .decay = false,
                       .split = Split::columns});
    }
    return specs;
  }

  std::vector<BufferSpec> buffers() const override {
    if (!options_.rope) return {};
    return {rope_buffer(*options_.rope)};
  }

  void fill_buffers(const std::vector<Tensor>& tables) const override {
    if (options_.rope) fill_rope_table(*options_.rope, tables[0].as<float>());
  }

  SegmentPlan plan(const SliceShape& shape, const kernels::Kernels& kernels) const override {
    const int64_t rows = shape.tokens();
    SegmentPlan plan;
    norm_.add_to(plan, rows, true);
    plan.gives.push_back({options_.gives, map_.type, {rows, given_width()}});
    plan.saves.push_back({"normed", map_.type, {rows, map_.in}});
    plan.weight_needs.push_back("save.normed");
    const std::string dgiven = "dout." + options_.gives;
    plan.input_needs.push_back(dgiven);
    if (options_.activation == Activation::none) {
      plan.weight_needs.push_back(dgiven);
    } else {
      plan.saves.push_back({"linear", map_.type, {rows, map_.out}});
      plan.input_needs.push_back("save.linear");
      plan.leaves.push_back({"dlinear", map_.type, {rows, map_.out}});
      plan.weight_needs.push_back("left.dlinear");
      if (options_.activation == Activation::gelu) plan.may_reuse.push_back({"left.dlinear", dgiven});
    }
    plan.scratch.push_back({Part::backward_input, {"dnormed", map_.type, {rows, map_.in}}});
    plan.workspace =
        std::max(map_.workspace(rows, kernels), kernels::bias_backward_workspace(rows, map_.out));
    return plan;
  }

  void forward(const Frame& f) const override {
    const int64_t rows = f.slice.tokens();
    const Tensor normed = f.saved("normed");
    norm_.forward(f, normed.data, true);
    const Tensor given = f.out(options_.gives);
    const bool gelu = options_.activation == Activation::gelu, none = options_.activation == Activation::none;
    const Tensor linear = none ? given : f.saved("linear");
    map_.forward(f, normed.data, f.weight("weight").data, map_.bias ? f.weight("bias").data : nullptr,
                 gelu ? given.data : linear.data, rows, gelu ? linear.data : nullptr);
    if (options_.activation == Activation::swiglu) {
      f.kernels->swiglu({map_.type, rows, map_.out / 2, linear.data, given.data}, f.launch);
    }
    if (options_.rope) {
      const RopeOptions& r = *options_.rope;
      f.kernels->rope(
          {.shape = {map_.type, f.slice.samples, f.slice.seq_len, r.heads, r.kv_heads, r.head_dim},
           .qkv = given.data,
           .table = f.buffer("rope").as<float>(),
           .first_position = f.slice.first_position},
          f.launch);
    }
  }

  void backward_input(const Frame& f) const override {
    const int64_t rows = f.slice.tokens();
    const Tensor dgiven = f.dout(options_.gives);
    if (options_.activation == Activation::gelu) {
      f.kernels->gelu_backward(
          {map_.type, rows * map_.out, f.saved("linear").data, dgiven.data, f.left("dlinear").data},
          f.launch);
    } else if (options_.activation == Activation::swiglu) {
      f.kernels->swiglu_backward(
          {map_.type, rows, map_.out / 2, f.saved("linear").data, dgiven.data, f.left("dlinear").data},
          f.launch);
    }
    const Tensor dnormed = f.scratch("dnormed");
    map_.backward_input(f, dlinear(f).data, f.weight("weight").data, dnormed.data, rows);
    norm_.backward_input(f, dnormed.data, true);
  }

  void backward_weight(const Frame& f) const override {
    const int64_t rows = f.slice.tokens();
    map_.backward_weight(f, f.saved("normed").data, dlinear(f).data, f.grad("weight").data, rows,
                         f.accumulate);
    if (map_.bias) {
      f.kernels->bias_backward(
          {map_.type, rows, map_.out, dlinear(f).data, f.grad("bias").as<float>(), f.accumulate}, f.launch);
    }
    norm_.backward_weight(f);
  }

  Cost cost(const SliceShape& shape, Part part) const override {
    Cost cost = map_.cost(shape.tokens(), part);
    const int64_t element = device::size_of(map_.type);
    if (part != Part::backward_weight) {
      cost.bytes = norm_.forward_bytes(shape.tokens());
      if (options_.activation != Activation::none)
        cost.bytes += shape.tokens() * (map_.out + given_width()) * element;
    }
    return cost;
  }

 private:
  int64_t given_width() const { return options_.activation == Activation::swiglu ? map_.out / 2 : map_.out; }
  Tensor dlinear(const Frame& f) const {
    return options_.activation == Activation::none ? f.dout(options_.gives) : f.left("dlinear");
  }
  NormLinearOptions options_;
  NormPart norm_;
  LinearMap map_;
};

class FinalNorm : public Segment {
 public:
  FinalNorm(NormOptions options, DType type)
      : width_(options.width), type_(type), norm_(std::move(options), type) {}
  std::string name() const override { return "norm"; }
  std::vector<ParamSpec> params() const override { return norm_.params(); }
  SegmentPlan plan(const SliceShape& shape, const kernels::Kernels&) const override {
    SegmentPlan plan;
    norm_.add_to(plan, shape.tokens(), false);
    plan.gives.push_back({"normed", type_, {shape.tokens(), width_}});
    plan.input_needs.push_back("dout.normed");
    return plan;
  }
  void forward(const Frame& f) const override { norm_.forward(f, f.out("normed").data, false); }
  void backward_input(const Frame& f) const override {
    norm_.backward_input(f, f.dout("normed").data, false);
  }
  void backward_weight(const Frame& f) const override { norm_.backward_weight(f); }
  Cost cost(const SliceShape& shape, Part part) const override {
    Cost cost;
    if (part != Part::backward_weight) cost.bytes = norm_.forward_bytes(shape.tokens());
    return cost;
  }

 private:
  int64_t width_;
  DType type_;
  NormPart norm_;
};

}  // namespace

std::unique_ptr<Segment> make_norm_linear(NormLinearOptions options) {
  return std::make_unique<NormLinear>(std::move(options));
}

std::unique_ptr<Segment> make_final_norm(NormOptions options, DType type) {
  return std::make_unique<FinalNorm>(std::move(options), type);
}

}  // namespace lockstep::model
