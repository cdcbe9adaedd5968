#include "lockstep/model/segments/norm_linear.h"

#include <utility>

#include "lockstep/model/segments/norm_part.h"
#include "lockstep/model/segments/strands.h"

namespace lockstep::model {

namespace {

class NormLinear : public Segment {
 public:
  explicit NormLinear(NormLinearOptions options) : options_(std::move(options)), map_(options_.map) {
    if (options_.norm) norm_.emplace(*options_.norm, map_.type);
    map_.out /= options_.parts.tensor;
    if (!options_.rope) return;
    options_.rope->heads /= options_.parts.tensor;
    options_.rope->kv_heads /= options_.parts.tensor;
  }

  std::string name() const override { return options_.segment; }
  bool adds_gradients_once(const SliceShape&) const override { return true; }

  std::vector<std::string> adaptable() const override {
    std::vector<std::string> names;
    for (const JoinedWeight& weight : options_.weights) names.push_back(weight.name);
    return names;
  }

  void adapt(const AdapterOptions& wanted) override {
    MapAdapters adapters = MapAdapters::of(wanted, map_.in, map_.out, map_.type);
    adapters.shared = options_.parts.tensor > 1;
    int64_t at = 0;
    for (const JoinedWeight& weight : options_.weights) {
      const int64_t out = weight.out / options_.parts.tensor;
      if (wanted.wants(weight.name)) adapters.all.push_back({weight.name, at, out, cut_of(weight, 0)});
      at += out;
    }
    if (!adapters.all.empty()) map_.adapters = std::make_shared<MapAdapters>(std::move(adapters));
  }

  std::vector<ParamSpec> params() const override {
    std::vector<ParamSpec> specs = norm_ ? norm_->params() : std::vector<ParamSpec>{};
    const Parts& parts = options_.parts;
    const Init init{Init::Kind::normal, options_.init_std};
    for (size_t i = 0; i < options_.weights.size(); ++i) {
      LinearMap part = map_;
      part.out = options_.weights[i].out / parts.tensor;
      specs.push_back({.key = i == 0 ? "weight" : "weight" + std::to_string(i),
                       .name = options_.weights[i].name + ".weight",
                       .shape = part.weight_shape(),
                       .init = init,
                       .cut = cut_of(options_.weights[i], map_.out_major ? 0 : 1),
                       .joined = i > 0});
    }
    if (map_.bias) {
      for (size_t i = 0; i < options_.weights.size(); ++i) {
        const JoinedWeight& weight = options_.weights[i];
        specs.push_back({.key = i == 0 ? "bias" : "bias" + std::to_string(i),
                         .name = weight.name + ".bias",
                         .shape = {weight.out / parts.tensor},
                         .decay = false,
                         .cut = cut_of(weight, 0),
                         .joined = i > 0});
      }
    }
    if (map_.adapters) {
      for (ParamSpec& spec : map_.adapters->params()) specs.push_back(std::move(spec));
    }
    return specs;
  }

  std::vector<BufferSpec> buffers() const override {
    if (!options_.rope) return {};
    return {rope_buffer(*options_.rope)};
  }

  std::vector<int64_t> column_groups() const override {
    std::vector<int64_t> columns = options_.columns;
    for (int64_t& count : columns) count /= options_.parts.tensor;
    return columns;
  }

  void fill_buffers(const std::vector<Tensor>& tables, int64_t length) const override {
    if (options_.rope) fill_rope_table(*options_.rope, length, tables[0].as<float>());
  }

  SegmentPlan plan(const SliceShape& shape, const kernels::Kernels& kernels) const override {
    const int64_t rows = shape.tokens();
    SegmentPlan plan;
    if (options_.rope && options_.rope->documents) plan.batch = {"documents"};
    if (norm_) {
      norm_->add_to(plan, rows, true);
      const ValueSpec normed{"normed", map_.type, {rows, map_.in}};
      if (map_.in_fp8(rows)) {
        plan.scratch.push_back({Part::forward, normed});  // the backward pass reads its copy
      } else {
        plan.saves.push_back(normed);
        plan.remakes.push_back({"save.normed", 2 * normed.bytes()});
      }
      plan.scratch.push_back({Part::backward_input, {"dnormed", map_.type, {rows, map_.in}}});
    } else if (options_.shares_input) {
      plan.passes = {options_.input};
      plan.input_needs = {"dout." + options_.input};
      plan.may_reuse.push_back({"din." + options_.input, "dout." + options_.input});
      plan.scratch.push_back({Part::backward_input, {"dnormed", map_.type, {rows, map_.in}}});
    } else {
      plan.inputs = {options_.input};
    }
    if (interleaves()) {
      const ValueSpec mapped{"mapped", map_.type, {rows, map_.out}};
      plan.scratch.push_back({Part::forward, mapped});
      if (leaves_dlinear(rows))
        plan.leaves.push_back({"dlinear", map_.type, {rows, map_.out}});
      else
        plan.scratch.push_back({Part::backward_input, {"dlinear", map_.type, {rows, map_.out}}});
    }
    const bool plain = options_.activation == Activation::plain;
    plan.outputs.push_back(
        {.name = options_.output, .dtype = map_.type, .shape = {rows, given_width()}, .gradient = !plain});
    const int64_t given_bytes = plan.outputs.back().bytes();
    if (plain) plan.outputs.push_back({"linear", map_.type, {rows, map_.out}});
    if (gives_amax(rows))
      plan.outputs.push_back(
          {.name = options_.output + "_amax", .dtype = DType::f32, .shape = {1}, .gradient = false});
    std::string dlinear = "dout." + (plain ? "linear" : options_.output);
    plan.input_needs.push_back(dlinear);
    if (interleaves()) dlinear = "left.dlinear";
    if (options_.activation == Activation::gated) {
      const ValueSpec spec{"dlinear", map_.type, {rows, map_.out}};
      plan.saves.push_back({"linear", map_.type, {rows, map_.out}});
      plan.input_needs.push_back("save.linear");
      if (leaves_dlinear(rows)) {
        plan.leaves.push_back(spec);
        plan.may_reuse.push_back({"left.dlinear", "save.linear"});
      } else {
        plan.scratch.push_back({Part::backward_input, spec});
      }
      // In fp8 the next map keeps a copy of its own.
      if (!map_.in_fp8(rows)) plan.remakes.push_back({"out." + options_.output, given_bytes});
      dlinear = "left.dlinear";
    }
    map_.add_to(plan, rows, norm_ ? "save.normed" : "in." + options_.input, dlinear);
    if (map_.in_fp8(rows) && map_.bias) plan.weight_needs.push_back(dlinear);
    const bool exchanges = options_.output == "qkv" && options_.parts.exchanges_qkv();
    if (exchanges) plan.seams = {{options_.output, Seam::to_heads}};
    plan.workspace =
        std::max(map_.workspace(rows, kernels), kernels::bias_backward_workspace(rows, map_.out));
    return plan;
  }

  void prepare(const Frame& f) const override { map_.prepare(f); }

  void forward(const Frame& f) const override {
    const int64_t rows = f.slice.tokens();
    const Tensor normed = !norm_              ? f.in(options_.input)
                          : map_.in_fp8(rows) ? f.scratch("normed")
                                              : f.saved("normed");
    if (norm_) norm_->forward(f, normed.data, true);
    const Tensor given = f.out(options_.output);
    const bool plain = options_.activation == Activation::plain,
               none = options_.activation == Activation::none;
    const Tensor linear = interleaves() ? f.scratch("mapped")
                          : none        ? given
                          : plain       ? f.out("linear")
                                        : f.saved("linear");
    map_.forward(f, normed.data, f.weight("weight").data, map_.bias ? f.weight("bias").data : nullptr,
                 plain ? given.data : linear.data, rows, plain ? linear.data : nullptr);
    if (options_.activation == Activation::gated) {
      float* amax = gives_amax(rows) ? f.out(options_.output + "_amax").as<float>() : nullptr;
      f.kernels->glu({map_.curve, map_.type, rows, map_.out / 2, linear.data, given.data, amax}, f.launch);
    }
    if (interleaves()) regroup(f, linear.data, given.data, false);
    if (options_.rope) rotate(f, *options_.rope, given, false);
  }

  void backward_input(const Frame& f) const override {
    const int64_t rows = f.slice.tokens();
    float* amax = nullptr;
    if (options_.activation == Activation::gated) {
      if (map_.wants_amax(rows)) amax = f.scratch("dy8_amax").as<float>();
      f.kernels->glu_backward(
          {map_.curve, map_.type, rows, map_.out / 2, f.saved("linear").data, f.dout(options_.output).data,
           dlinear(f).data, f.again(options_.output).data, amax},
          f.launch);
    }
    if (interleaves()) regroup(f, f.dout(options_.output).data, dlinear(f).data, true);
    const bool apart = norm_ || options_.shares_input;
    const Tensor dnormed = apart ? f.scratch("dnormed") : f.din(options_.input);
    map_.backward_input(f, dlinear(f).data, f.weight("weight").data, dnormed.data, rows, nullptr, amax);
    if (norm_) norm_->backward_input(f, dnormed.data, true);
    if (options_.shares_input) {
      f.kernels->add_edges(
          {map_.type, dnormed.numel(), f.dout(options_.input).data, dnormed.data, f.din(options_.input).data},
          f.launch);
    }
    if (const Tensor normed = f.again("normed")) norm_->again(f, normed.data, true);
  }

  void backward_weight(const Frame& f) const override {
    const int64_t rows = f.slice.tokens();
    if (!f.trains("weight")) {
    } else if (map_.in_fp8(rows)) {
      map_.backward_weight(f, nullptr, nullptr, f.grad("weight").data, rows, f.accumulate);
    } else {
      const Tensor normed = norm_ ? f.saved("normed") : f.in(options_.input);
      map_.backward_weight(f, normed.data, dlinear(f).data, f.grad("weight").data, rows, f.accumulate);
    }
    if (map_.adapters) {
      const Tensor x = norm_ ? f.saved("normed") : f.in(options_.input);
      map_.adapters->backward_weight(f, x.data, dlinear(f).data, rows);
    }
    if (map_.bias && f.trains("bias")) {
      f.kernels->bias_backward(
          {map_.type, rows, map_.out, dlinear(f).data, f.grad("bias").as<float>(), f.accumulate}, f.launch);
    }
    if (norm_) norm_->backward_weight(f);
  }

  Cost cost(const SliceShape& shape, Part part) const override {
    Cost cost = map_.cost(shape.tokens(), part);
    const int64_t element = device::size_of(map_.type);
    if (part != Part::backward_weight) {
      if (norm_) cost.bytes += norm_->forward_bytes(shape.tokens());
      if (options_.activation != Activation::none)
        cost.bytes += shape.tokens() * (map_.out * (part == Part::forward ? 1 : 2) + given_width()) * element;
    }
    return cost;
  }

 private:
  Cut cut_of(const JoinedWeight& weight, int dim) const {
    return {.dim = dim,
            .groups = weight.groups,
            .part = options_.parts.tensor_rank,
            .parts = options_.parts.tensor,
            .sizes = weight.sizes};
  }
  int64_t given_width() const { return options_.activation == Activation::gated ? map_.out / 2 : map_.out; }
  // The gradient of the map's output outlives backward_input only where something still reads it itself.
  bool leaves_dlinear(int64_t rows) const { return !map_.in_fp8(rows) || map_.bias; }
  bool gives_amax(int64_t rows) const {
    return options_.activation == Activation::gated && map_.wants_amax(rows);
  }
  bool interleaves() const { return options_.interleaved > 0; }
  // From q, k and v of each head to all of q, all of k and all of v; back: the other way.
  void regroup(const Frame& f, const void* from, void* to, bool back) const {
    const int64_t heads = options_.interleaved / options_.parts.tensor;
    f.kernels->regroup({.type = map_.type,
                        .rows = f.slice.tokens(),
                        .outer = back ? 3 : heads,
                        .inner = back ? heads : 3,
                        .width = map_.out / 3 / heads,
                        .x = from,
                        .y = to},
                       f.launch);
  }
  Tensor dlinear(const Frame& f) const {
    if (interleaves()) return leaves_dlinear(f.slice.tokens()) ? f.left("dlinear") : f.scratch("dlinear");
    switch (options_.activation) {
      case Activation::none:
        return f.dout(options_.output);
      case Activation::plain:
        return f.dout("linear");
      case Activation::gated:
        break;
    }
    return leaves_dlinear(f.slice.tokens()) ? f.left("dlinear") : f.scratch("dlinear");
  }
  NormLinearOptions options_;
  std::optional<NormPart> norm_;
  LinearMap map_;
};

}  // namespace

void add_norm_linear(std::vector<std::unique_ptr<Segment>>& segments, NormLinearOptions options) {
  const Parts parts = options.parts;
  if (parts.cuts_products() && options.norm) {
    NormOptions norm = *std::exchange(options.norm, std::nullopt);
    segments.push_back(make_norm(options.segment + "_norm", std::move(norm), options.map.type, parts));
  }
  if (!parts.fixes_products()) return segments.push_back(std::make_unique<NormLinear>(std::move(options)));
  const SharedInput normed{options.input, options.map.type, options.map.in};
  segments.push_back(in_strands(parts, {.shared = {normed}}, [&](const Parts& one) {
    NormLinearOptions of_one = options;
    of_one.parts = one;
    return std::make_unique<NormLinear>(std::move(of_one));
  }));
}

}  // namespace lockstep::model
