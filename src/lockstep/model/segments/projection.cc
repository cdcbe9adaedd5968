#include "lockstep/model/segments/parts.h"
#include "lockstep/model/segments/strands.h"

namespace lockstep::model {

namespace {

class Projection : public Segment {
 public:
  explicit Projection(ProjectionOptions options) : o_(std::move(options)), map_(o_.map) {
    map_.in /= o_.parts.tensor;
  }
  std::string name() const override { return o_.segment; }
  bool adds_gradients_once(const SliceShape&) const override { return true; }

  std::vector<std::string> adaptable() const override { return {o_.name}; }

  void adapt(const AdapterOptions& wanted) override {
    if (!wanted.wants(o_.name)) return;
    MapAdapters adapters = MapAdapters::of(wanted, map_.in, map_.out, map_.type);
    adapters.shared = o_.parts.tensor > 1;
    adapters.input_cut = {1, 1, o_.parts.tensor_rank, o_.parts.tensor};
    adapters.all.push_back({.map = o_.name, .at = 0, .out = map_.out});
    map_.adapters = std::make_shared<MapAdapters>(std::move(adapters));
  }

  std::vector<ParamSpec> params() const override {
    std::vector<ParamSpec> specs;
    specs.push_back({.key = "weight",
                     .name = o_.name + ".weight",
                     .shape = map_.weight_shape(),
                     .init = {Init::Kind::normal, o_.init_std},
                     .cut = {map_.out_major ? 1 : 0, 1, o_.parts.tensor_rank, o_.parts.tensor}});
    if (map_.bias)
      specs.push_back({.key = "bias", .name = o_.name + ".bias", .shape = {map_.out}, .decay = false});
    if (map_.adapters) {
      for (ParamSpec& spec : map_.adapters->params()) specs.push_back(std::move(spec));
    }
    return specs;
  }

  SegmentPlan plan(const SliceShape& shape, const kernels::Kernels& kernels) const override {
    const int64_t rows = shape.tokens();
    SegmentPlan plan;
    plan.inputs = {o_.input};
    if (behind_curve()) {
      plan.inputs.push_back(o_.curve_of);
      plan.input_needs = {"in." + o_.curve_of};
    }
    if (knows_amax(rows)) plan.inputs.push_back(o_.input + "_amax");
    if (adds()) plan.inputs.push_back(o_.adds);
    plan.outputs = {{o_.output, map_.type, {rows, map_.out}}};
    const std::string given = "dout." + o_.output;
    plan.input_needs.push_back(given);
    if (drops()) plan.leaves = {{"dmapped", map_.type, {rows, map_.out}}};
    const std::string dmapped = drops() ? "left.dmapped" : given;
    map_.add_to(plan, rows, "in." + o_.input, dmapped);
    if (map_.in_fp8(rows) && map_.bias) plan.weight_needs.push_back(dmapped);
    plan.workspace =
        std::max(map_.workspace(rows, kernels), kernels::bias_backward_workspace(rows, map_.out));
    if (o_.parts.tensor > 1 && o_.output == "hidden")
      plan.seams = {{o_.output, o_.parts.sequence ? Seam::scatter_tokens : Seam::sum}};
    return plan;
  }

  void prepare(const Frame& f) const override { map_.prepare(f); }

  void forward(const Frame& f) const override {
    const Tensor hidden = f.out(o_.output);
    const float* amax = knows_amax(f.slice.tokens()) ? f.in(o_.input + "_amax").as<float>() : nullptr;
    // Of the tensor ranks, whose outputs are added up, one adds the bias. Dropping before or after is the
    // same.
    const bool biased = map_.bias && o_.parts.tensor_rank == 0;
    map_.forward(f, f.in(o_.input).data, f.weight("weight").data, biased ? f.weight("bias").data : nullptr,
                 hidden.data, f.slice.tokens(), nullptr, amax);
    if (drops() && f.slice.training) drop(f, hidden.data, hidden.data);
    if (adds()) {
      f.kernels->add_edges(
          {map_.type, f.slice.tokens() * map_.out, hidden.data, f.in(o_.adds).data, hidden.data}, f.launch);
    }
  }

  void backward_input(const Frame& f) const override {
    const Tensor given = f.dout(o_.output);
    if (drops()) drop(f, given.data, f.left("dmapped").data);
    if (adds())
      f.kernels->cast({map_.type, map_.type, given.numel(), given.data, f.din(o_.adds).data}, f.launch);
    map_.backward_input(f, dmapped(f), f.weight("weight").data,
                        f.din(behind_curve() ? o_.curve_of : o_.input).data, f.slice.tokens(),
                        behind_curve() ? f.in(o_.curve_of).data : nullptr);
  }

  void backward_weight(const Frame& f) const override {
    const int64_t rows = f.slice.tokens();
    const bool copies = map_.in_fp8(rows);
    if (f.trains("weight"))
      map_.backward_weight(f, copies ? nullptr : f.in(o_.input).data, copies ? nullptr : dmapped(f),
                           f.grad("weight").data, rows, f.accumulate);
    if (map_.adapters) map_.adapters->backward_weight(f, f.in(o_.input).data, dmapped(f), rows);
    if (!map_.bias || !f.trains("bias")) return;
    f.kernels->bias_backward(
        {map_.type, rows, map_.out, dmapped(f), f.grad("bias").as<float>(), f.accumulate}, f.launch);
  }

  Cost cost(const SliceShape& shape, Part part) const override {
    Cost cost = map_.cost(shape.tokens(), part);
    if (behind_curve() && part == Part::backward_input)
      cost.bytes += shape.tokens() * map_.in * device::size_of(map_.type);
    return cost;
  }

 private:
  bool adds() const { return !o_.adds.empty(); }
  bool behind_curve() const { return !o_.curve_of.empty(); }
  // Whoever gives the input says how large it is.
  bool knows_amax(int64_t rows) const { return o_.takes_amax && map_.wants_amax(rows); }
  bool drops() const { return o_.dropout.rate > 0; }
  const void* dmapped(const Frame& f) const {
    return drops() ? f.left("dmapped").data : f.dout(o_.output).data;
  }
  void drop(const Frame& f, const void* x, void* y) const {
    model::drop(f, o_.dropout, map_.type, map_.out, x, y);
  }
  ProjectionOptions o_;
  LinearMap map_;
};

}  // namespace

std::unique_ptr<Segment> make_projection(ProjectionOptions options) {
  if (options.parts.fixes_products()) {
    StrandEdges edges;  // what waits to be added is each strand's own
    if (options.output == "hidden") edges.summed = {"hidden"};
    return in_strands(options.parts, edges, [&](const Parts& one) {
      ProjectionOptions of_one = options;
      of_one.parts = one;
      return make_projection(std::move(of_one));
    });
  }
  return std::make_unique<Projection>(std::move(options));
}

}  // namespace lockstep::model
