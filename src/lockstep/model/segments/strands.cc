#include "lockstep/model/segments/strands.h"

#include <fmt/format.h>

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/model/segments/joined.h"

namespace lockstep::model {

namespace {

constexpr const char* kAddend = "addend.";     // scratch: a strand's addend of an output
constexpr const char* kGradient = "daddend.";  // of a shared input's gradient
constexpr const char* kPartial = "partial.";   // of the gradient of a parameter that all strands use
constexpr const char* kNoLoss = "other_loss";  // where strands but the first put the loss, which all compute

class Strands : public Segment {
 public:
  Strands(const Parts& parts, StrandEdges edges,
          const std::function<std::unique_ptr<Segment>(const Parts&)>& make)
      : parts_(parts), edges_(std::move(edges)) {
    Parts one = parts;
    one.tensor = parts.product_strands;
    one.product_strands = 1;
    one.sequence = false;
    for (int k = 0; k < parts.strands_here(); ++k) {
      one.tensor_rank = parts.tensor_rank * parts.strands_here() + k;
      all_.push_back({make(one), fmt::format("#{}", one.tensor_rank)});
    }
  }

  std::string name() const override { return first().name(); }
  std::vector<BufferSpec> buffers() const override { return first().buffers(); }
  void fill_buffers(const std::vector<Tensor>& tables, int64_t length) const override {
    first().fill_buffers(tables, length);
  }
  std::vector<int64_t> column_groups() const override { return first().column_groups(); }
  bool joins_pieces() const override { return first().joins_pieces(); }
  bool can_be_captured() const override { return first().can_be_captured(); }
  std::vector<std::string> adaptable() const override { return first().adaptable(); }
  void adapt(const AdapterOptions& wanted) override {
    for (const Strand& strand : all_) strand.segment->adapt(wanted);
  }
  std::string numerics(const SliceShape& shape, const kernels::Kernels& kernels) const override {
    return first().numerics(shape, kernels);
  }

  // Parts of what is cut, one parameter each; what is not cut, once.
  std::vector<ParamSpec> params() const override {
    std::vector<ParamSpec> specs;
    for (size_t k = 0; k < all_.size(); ++k) {
      for (ParamSpec& spec : all_[k].segment->params()) {
        if (!spec.cut.cuts() && k > 0) continue;
        if (spec.cut.cuts()) {
          spec.key += all_[k].suffix;
          spec.cut.fixed = true;
        }
        spec.partial = spec.partial && parts_.tensor > 1;
        specs.push_back(std::move(spec));
      }
    }
    return specs;
  }

  SegmentPlan plan(const SliceShape& shape, const kernels::Kernels& kernels) const override {
    SegmentPlan plan;
    for (size_t k = 0; k < all_.size(); ++k)
      add_to(plan, all_[k].segment->plan(shape, kernels), k, shape.tokens());
    return plan;
  }

  void prepare(const Frame& f) const override {
    for (const Strand& strand : all_) strand.segment->prepare(f.within(strand.suffix));
  }

  void forward(const Frame& f) const override {
    for (size_t k = 0; k < all_.size(); ++k) {
      Frame own = f.within(all_[k].suffix);
      for (const std::string& name : several() ? edges_.summed : std::vector<std::string>{})
        own.bind("out." + name, f.scratch(kAddend + name + all_[k].suffix));
      if (edges_.loss) {
        if (several()) bind_gradients(f, own, k);
        if (k > 0) own.loss = f.scratch(kNoLoss).as<double>();
        if (f.part % 2 == 0) own.bind("out.stats", stats_of(f, k));
        bind_weight_gradients(f, own, k);
      }
      all_[k].segment->forward(own);
    }
    if (edges_.loss) {
      if (f.last_part && f.slice.training && f.input_gradient) sum_gradients(f);
      return;
    }
    for (const std::string& name : several() ? edges_.summed : std::vector<std::string>{})
      sum(f, kAddend, name, f.out(name));
  }

  void decode(const Frame&) const override { LS_ASSERT(false, "texts are continued without strands"); }

  void backward_input(const Frame& f) const override {
    for (size_t k = 0; k < all_.size(); ++k) {
      Frame own = f.within(all_[k].suffix);
      if (several()) bind_gradients(f, own, k);
      all_[k].segment->backward_input(own);
    }
    sum_gradients(f);
  }

  void backward_weight(const Frame& f) const override {
    for (size_t k = 0; k < all_.size(); ++k) {
      Frame own = f.within(all_[k].suffix);
      bind_weight_gradients(f, own, k);
      all_[k].segment->backward_weight(own);
    }
    for (const Joined& joined : partials()) sum_partials(f, joined);
  }

  Cost cost(const SliceShape& shape, Part part) const override {
    Cost total;
    for (const Strand& strand : all_) total = model::sum(std::move(total), strand.segment->cost(shape, part));
    return total;
  }

 private:
  struct Strand {
    std::unique_ptr<Segment> segment;
    std::string suffix;
  };

  const Segment& first() const { return *all_.front().segment; }
  bool several() const { return all_.size() > 1; }
  bool shared(const std::string& name) const {
    return std::any_of(edges_.shared.begin(), edges_.shared.end(),
                       [&](const SharedInput& input) { return input.name == name; });
  }
  bool summed(const std::string& name) const {
    return std::count(edges_.summed.begin(), edges_.summed.end(), name) > 0;
  }
  // What leaves this rank unfinished keeps its digits until the ranks have added it up.
  DType sum_type(DType type) const { return parts_.tensor > 1 && several() ? DType::f32 : type; }

  // ---- the plan: that of each strand, under names of its own

  std::string as(const std::string& name, size_t k) const {
    return shared(name) || summed(name) ? name : name + all_[k].suffix;
  }
  std::string role_as(const std::string& role_and_name, size_t k) const {
    const size_t dot = role_and_name.find('.');
    const std::string role = role_and_name.substr(0, dot + 1), name = role_and_name.substr(dot + 1);
    return role == "batch." ? role_and_name : role + as(name, k);
  }
  ValueSpec value_as(ValueSpec spec, size_t k) const {
    spec.name += all_[k].suffix;
    return spec;
  }

  void add_to(SegmentPlan& plan, SegmentPlan one, size_t k, int64_t tokens) const {
    if (k == 0) {
      plan.batch = one.batch;
      plan.loss = one.loss;
      add_shared(plan, one, tokens);
    }
    for (const std::string& name : one.passes) {
      LS_ASSERT(!shared(name), "strands that pass on an edge that each takes whole");
      plan.passes.push_back(as(name, k));
    }
    for (const std::string& name : one.inputs) {
      if (!shared(name)) plan.inputs.push_back(as(name, k));
    }
    for (const ValueSpec& spec : one.outputs) {
      if (!summed(spec.name)) {
        plan.outputs.push_back(value_as(spec, k));
      } else if (several()) {
        ValueSpec addend = value_as(spec, k);
        addend.name = kAddend + addend.name;
        plan.scratch.push_back({Part::forward, addend});
      }
    }
    for (const ValueSpec& spec : one.saves) plan.saves.push_back(value_as(spec, k));
    for (const ValueSpec& spec : one.leaves) plan.leaves.push_back(value_as(spec, k));
    for (const auto& [part, spec] : one.scratch) plan.scratch.push_back({part, value_as(spec, k)});
    for (const auto& [part, spec] : one.prepares) plan.prepares.push_back({part, value_as(spec, k)});
    add_needs(plan.input_needs, one.input_needs, k);
    add_needs(plan.weight_needs, one.weight_needs, k);
    for (const auto& [a, b] : one.same) plan.same.push_back({role_as(a, k), role_as(b, k)});
    for (const auto& [a, b] : one.may_reuse) plan.may_reuse.push_back({role_as(a, k), role_as(b, k)});
    for (const Remake& remake : one.remakes)
      plan.remakes.push_back({role_as(remake.value, k), remake.moved_bytes});
    for (const std::string& name : one.wide_gradients) {
      if (!shared(name)) plan.wide_gradients.push_back(as(name, k));
    }
    for (const auto& [name, seam] : one.seams) {
      if (!summed(name)) plan.seams.push_back({as(name, k), seam});
    }
    plan.workspace = std::max(plan.workspace, one.workspace);
    if (one.ring) add_ring(plan, *one.ring, k);
  }

  // What all strands have in common, from the first one's plan.
  void add_shared(SegmentPlan& plan, const SegmentPlan& one, int64_t tokens) const {
    for (const SharedInput& input : edges_.shared) {
      plan.inputs.push_back(input.name);
      if (sum_type(input.type) != input.type) plan.wide_gradients.push_back(input.name);
      for (size_t k = 0; several() && k < all_.size(); ++k) {
        plan.scratch.push_back(
            {one.loss ? Part::forward : Part::backward_input,
             {kGradient + input.name + all_[k].suffix, input.type, {tokens, input.width}}});
      }
    }
    for (ValueSpec spec : one.outputs) {
      if (!summed(spec.name)) continue;
      spec.dtype = sum_type(spec.dtype);
      plan.outputs.push_back(spec);
      if (parts_.tensor > 1) plan.seams.push_back({spec.name, seam_behind(one, spec.name)});
    }
    for (ValueSpec spec : one.rounds) {
      spec.shape = {spec.shape[0] * static_cast<int64_t>(all_.size()), spec.shape[1]};
      plan.rounds.push_back(spec);
    }
    if (one.loss && several()) plan.scratch.push_back({Part::forward, {kNoLoss, DType::f64, {1}}});
    for (const Joined& joined : partials()) {
      for (const Strand& strand : all_)
        plan.scratch.push_back(
            {Part::backward_weight, {partial_name(joined, strand), DType::f32, {joined.count()}}});
    }
  }
  // A strand is one of as many tensor ranks, none of which has its tokens alone.
  Seam seam_behind(const SegmentPlan& one, const std::string& name) const {
    for (const auto& [edge, seam] : one.seams) {
      if (edge == name) return seam == Seam::sum && parts_.sequence ? Seam::scatter_tokens : seam;
    }
    LS_ASSERT(false, "strands that add up an edge without a seam");
    return Seam::none;
  }

  void add_needs(std::vector<std::string>& needs, const std::vector<std::string>& more, size_t k) const {
    for (const std::string& need : more) {
      const std::string name = role_as(need, k);
      if (std::count(needs.begin(), needs.end(), name) == 0) needs.push_back(name);
    }
  }

  void add_ring(SegmentPlan& plan, const Ring& one, size_t k) const {
    if (!plan.ring) plan.ring = Ring{.parts = one.parts};
    const auto add = [&](std::vector<ValueSpec>& to, const std::vector<ValueSpec>& from) {
      for (const ValueSpec& spec : from) to.push_back(value_as(spec, k));
    };
    add(plan.ring->travels, one.travels);
    add(plan.ring->gradients, one.gradients);
    add(plan.ring->across, one.across);
    add(plan.ring->back, one.back);
  }

  // ---- running

  void bind_gradients(const Frame& f, Frame& own, size_t k) const {
    for (const SharedInput& input : edges_.shared)
      own.bind("din." + input.name, f.scratch(kGradient + input.name + all_[k].suffix));
  }

  // Parameters that are not cut, of whose gradients every strand has an addend.
  std::vector<Joined> partials() const {
    std::vector<Joined> all = several() ? joined_params(first().params()) : std::vector<Joined>{};
    std::erase_if(all, [](const Joined& joined) {
      return joined.params.front().cut.cuts() || !joined.params.front().partial;
    });
    return all;
  }
  static std::string partial_name(const Joined& joined, const Strand& strand) {
    return kPartial + joined.params.front().key + strand.suffix;
  }

  // Gradients of what is not cut: equal in every strand, so that the first one's will do; or addends, each of
  // this slice alone.
  void bind_weight_gradients(const Frame& f, Frame& own, size_t k) const {
    if (!several()) return;
    for (const ParamSpec& spec : first().params()) {
      if (!spec.cut.cuts() && !spec.partial && k > 0) own.freeze(spec.key);
    }
    for (const Joined& joined : partials()) {
      auto* to = f.scratch(partial_name(joined, all_[k])).as<float>();
      if (f.accumulate) f.kernels->fill_value({joined.count(), to, 0.0f}, f.launch);
      for (const ParamSpec& spec : joined.params) {
        own.bind("grad." + spec.key, {to, DType::f32, spec.shape});
        to += spec.shape.numel();
      }
    }
  }

  void sum(const Frame& f, const char* role, const std::string& name, const Tensor& to) const {
    kernels::SumAddends op = sum_into(to);
    for (size_t k = 0; k < all_.size(); ++k) {
      const Tensor addend = f.scratch(role + name + all_[k].suffix);
      op.in = addend.dtype;
      op.from[k] = addend.data;
    }
    f.kernels->sum_addends(op, f.launch);
  }
  kernels::SumAddends sum_into(const Tensor& to) const {
    return {.out = to.dtype, .count = to.numel(), .inputs = static_cast<int>(all_.size()), .to = to.data};
  }

  void sum_gradients(const Frame& f) const {
    if (!several()) return;
    for (const SharedInput& input : edges_.shared) sum(f, kGradient, input.name, f.din(input.name));
  }

  void sum_partials(const Frame& f, const Joined& joined) const {
    int64_t at = 0;
    for (const ParamSpec& spec : joined.params) {
      if (f.trains(spec.key)) {
        const Tensor gradient = f.grad(spec.key);
        const auto addend = [&](size_t k) {
          return f.scratch(partial_name(joined, all_[k])).as<float>() + at;
        };
        const Tensor first{addend(0), DType::f32, spec.shape};
        kernels::SumAddends op = sum_into(f.accumulate ? first : gradient);
        op.in = DType::f32;
        for (size_t k = 0; k < all_.size(); ++k) op.from[k] = addend(k);
        f.kernels->sum_addends(op, f.launch);
        if (f.accumulate)
          f.kernels->add({gradient.numel(), gradient.as<float>(), first.as<float>()}, f.launch);
      }
      at += spec.shape.numel();
    }
  }

  Tensor stats_of(const Frame& f, size_t k) const {
    const Tensor all = f.out("stats");
    const int64_t rows = all.shape[0] / static_cast<int64_t>(all_.size());
    return {all.as<float>() + static_cast<int64_t>(k) * rows * all.shape[1], all.dtype, {rows, all.shape[1]}};
  }

  Parts parts_;
  StrandEdges edges_;
  std::vector<Strand> all_;
};

}  // namespace

std::unique_ptr<Segment> in_strands(const Parts& parts, StrandEdges edges,
                                    const std::function<std::unique_ptr<Segment>(const Parts&)>& make) {
  return std::make_unique<Strands>(parts, std::move(edges), make);
}

}  // namespace lockstep::model
