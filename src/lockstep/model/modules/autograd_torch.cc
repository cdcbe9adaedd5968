#include "lockstep/model/modules/autograd_torch.h"

#include <ATen/Context.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include <cstring>
#include <map>

#include "lockstep/base/error.h"
#include "lockstep/base/hash.h"
#include "lockstep/model/modules/device_torch.h"
#include "lockstep/model/modules/module_file.h"
#include "lockstep/model/modules/module_torch.h"
#include "lockstep/model/modules/module_trial_torch.h"

namespace lockstep::model {

namespace {

// What forward keeps of a slice until backward_input, and that until backward_weight.
struct Tape {
  std::shared_ptr<Lease> lease;
  at::Tensor input, output;
  std::vector<at::Tensor> gradients;  // of those that are not frozen, in the order of the trained values
};

class ModuleSegment : public Segment, public BatchReader {
 public:
  explicit ModuleSegment(AutogradOptions options)
      : o_(std::move(options)), values_(values_of(o_)), site_(base::hash_text(o_.name)) {
    for (const ModuleValue& value : values_.trained) {
      first_params_.push_back(host_copy(value.tensor, at::kFloat));
      params_.push_back({.key = value.key,
                         .name = name_of(value),
                         .shape = shape_of(value.tensor),
                         .init = {Init::Kind::given, 0, first_params_.back().const_data_ptr<float>()},
                         .decay = value.tensor.dim() > 1});
    }
    for (const ModuleValue& value : values_.untrained) {
      buffers_.push_back({.key = value.key,
                          .name = name_of(value),
                          .dtype = dtype_of(value.tensor),
                          .shape = shape_of(value.tensor),
                          .constant = false});
      first_buffers_.push_back(host_copy(value.tensor, value.tensor.scalar_type()));
    }
  }

  std::string name() const override { return "module"; }
  std::vector<ParamSpec> params() const override { return params_; }
  std::vector<BufferSpec> buffers() const override { return buffers_; }

  SegmentPlan plan(const SliceShape& shape, const kernels::Kernels& kernels) const override {
    const Trial& trial = tried(shape.samples, device_of(kernels));
    const auto held_by_torch = [](const char* name, int64_t bytes) {
      return ValueSpec{name, DType::u8, {bytes}, true};
    };
    SegmentPlan plan;
    (o_.reads_batch ? plan.batch : plan.inputs) = {o_.reads_batch ? "inputs" : "hidden"};
    plan.outputs = {{"hidden", o_.type, {shape.samples, o_.out.numel()}}};
    plan.saves = {held_by_torch("graph", trial.kept_bytes)};
    plan.scratch = {{Part::forward, held_by_torch("temporaries", trial.forward_bytes)},
                    {Part::backward_input, held_by_torch("backward temporaries", trial.backward_bytes)}};
    plan.input_needs = {"save.graph", "dout.hidden", o_.reads_batch ? "batch.inputs" : "in.hidden"};
    if (values_.trained.empty()) return plan;
    int64_t count = 0;
    for (const ParamSpec& spec : params_) count += spec.shape.numel();
    plan.leaves = {held_by_torch("parameter gradients", count * device::size_of(o_.type))};
    plan.weight_needs = {"left.parameter gradients", "dout.hidden"};  // a gradient may be a view of dout
    return plan;
  }

  bool can_be_captured() const override { return false; }  // LibTorch allocates as it goes
  std::string numerics(const SliceShape&, const kernels::Kernels&) const override { return o_.identity; }
  std::optional<DType> input_type() const override {
    if (!o_.reads_batch) return std::nullopt;
    return o_.tokens ? DType::i32 : DType::f32;
  }

  void forward(const Frame& f) const override {
    const OnDevice here(f.device->id(), f.launch, {.exact = o_.exact});
    const std::shared_ptr<Lease> lease = borrow();
    for (const ModuleValue& value : values_.trained)
      point_at(value.tensor, f.weight(value.key), scalar_type(o_.type), here.device());
    point_at_buffers(f);
    Tape* tape = f.graph != nullptr ? &tape_of(f) : nullptr;
    const bool with_graph = tape != nullptr && f.slice.training;
    const c10::AutoGradMode mode(with_graph);
    const at::Tensor input = input_of(f, with_graph);
    const at::Tensor output = call(f, input);
    view_of(f.out("hidden"), batched(f.slice.samples, o_.out), scalar_type(o_.type), here.device())
        .copy_(output.detach());
    if (!with_graph) return;
    tape->input = input;
    tape->output = output;
  }

  void backward_input(const Frame& f) const override {
    const OnDevice here(f.device->id(), f.launch, {.exact = o_.exact});
    Tape& tape = tape_of(f);
    if (weights_moved(f)) compute_again(f, tape);
    std::vector<at::Tensor> wanted, found;
    if (!o_.reads_batch) wanted.push_back(tape.input);
    for (const ModuleValue& value : values_.trained) {
      if (f.trains(value.key)) wanted.push_back(value.tensor);
    }
    found.resize(wanted.size());
    const at::Tensor dout =
        view_of(f.dout("hidden"), tape.output.sizes(), scalar_type(o_.type), here.device());
    if (tape.output.requires_grad() && !wanted.empty()) {
      found = torch::autograd::grad({tape.output}, wanted, {dout.to(tape.output.scalar_type())}, false, false,
                                    true);
    }
    tape.input = tape.output = at::Tensor();  // the graph goes
    if (!o_.reads_batch) {
      write(f.din("hidden"), found.front(), scalar_type(o_.type), Into::nothing, here.device());
      found.erase(found.begin());
    }
    tape.gradients = std::move(found);
  }

  void backward_weight(const Frame& f) const override {
    const OnDevice here(f.device->id(), f.launch, {.exact = o_.exact});
    Tape& tape = tape_of(f);
    const Into into = f.accumulate ? Into::sum : Into::nothing;
    size_t found = 0;
    for (const ParamSpec& param : params_) {
      if (f.trains(param.key))
        write(f.grad(param.key), tape.gradients[found++], at::kFloat, into, here.device());
    }
    tape.gradients.clear();
  }

  void fill_buffers(const std::vector<Tensor>& tables, int64_t) const override {
    for (size_t k = 0; k < tables.size(); ++k) {
      std::memcpy(tables[k].data, first_buffers_[k].const_data_ptr(), static_cast<size_t>(tables[k].bytes()));
    }
  }

  // Floating values move by the mean of what the slices moved them; counters go where the first slice put
  // them, so that they count steps.
  void fold_statistics(const Frame& f) const override {
    const OnDevice here(f.device->id(), f.launch, {.exact = o_.exact});
    // A step that is skipped leaves them alone. The device knows: its host may be a step ahead.
    const Tensor flag{const_cast<uint32_t*>(&f.state->apply), DType::i32, {1}};
    const at::Tensor applied = view_of(flag, at::IntArrayRef(), at::kInt, here.device()).ne(0);
    for (const ModuleValue& value : values_.untrained) {
      const auto view = [&](const Tensor& memory) {
        return view_of(memory, value.tensor.sizes(), value.tensor.scalar_type(), here.device());
      };
      const at::Tensor start = view(f.buffer(value.key));
      start.copy_(at::where(applied, folded(f, value, start, view), start));
    }
  }

  // At least one product with every matrix a sample; what a module does with it is not known.
  Cost cost(const SliceShape& shape, Part part) const override {
    Cost cost;
    for (const ParamSpec& spec : params_) {
      if (spec.shape.rank() > 1)
        cost.products.push_back({shape.samples, spec.shape[0], spec.shape.numel() / spec.shape[0]});
    }
    cost.bytes = shape.samples * (o_.in.numel() + o_.out.numel()) * device::size_of(o_.type) *
                 (part == Part::forward ? 1 : 2);
    return cost;
  }

 private:
  std::string name_of(const ModuleValue& value) const {
    return o_.bare_names ? value.key : o_.name + "." + value.key;
  }

  // With ZeRO 3, weights are gathered again for the backward pass, and may lie elsewhere then. The graph
  // reads them where they were in the forward pass, which is somebody else's memory by now.
  bool weights_moved(const Frame& f) const {
    for (const ModuleValue& value : values_.trained) {
      if (value.tensor.numel() > 0 && value.tensor.const_data_ptr() != f.weight(value.key).data) return true;
    }
    return false;
  }

  // The same forward pass, over the weights as they lie now: the same bits, and a graph that may be used.
  void compute_again(const Frame& f, Tape& tape) const {
    const at::Device where = torch_device(f.device->id());
    for (const ModuleValue& value : values_.trained)
      point_at(value.tensor, f.weight(value.key), scalar_type(o_.type), where);
    tape.input = tape.output = at::Tensor();
    const c10::AutoGradMode with_graph(true);
    tape.input = input_of(f, true);
    const Discarded statistics(values_.untrained);  // the first pass has counted this slice
    tape.output = draw_and_call(f, tape.input);
  }

  // While it lives, untrained values are copies: what changes them is forgotten.
  class Discarded {
   public:
    explicit Discarded(const std::vector<ModuleValue>& values) : values_(values) {
      for (const ModuleValue& value : values) {
        before_.push_back(value.tensor.detach());
        at::Tensor(value.tensor).set_data(before_.back().clone());
      }
    }
    ~Discarded() {
      for (size_t k = 0; k < before_.size(); ++k) at::Tensor(values_[k].tensor).set_data(before_[k]);
    }
    Discarded(const Discarded&) = delete;
    Discarded& operator=(const Discarded&) = delete;

   private:
    const std::vector<ModuleValue>& values_;
    std::vector<at::Tensor> before_;
  };

  static at::Tensor host_copy(const at::Tensor& value, at::ScalarType type) {
    return value.detach()
        .to(at::TensorOptions().device(at::kCPU).dtype(type), /*non_blocking=*/false, /*copy=*/true)
        .contiguous();
  }

  // A plan is made for the device that is current then.
  static device::Id device_of(const kernels::Kernels& kernels) {
    if (&kernels == &kernels::kernels_for(device::Kind::cpu)) return {};
    load_torch_cuda();
    return {device::Kind::cuda, c10::impl::getDeviceGuardImpl(at::kCUDA)->getDevice().index()};
  }

  const Trial& tried(int64_t samples, const device::Id& id) const {
    const auto found = trials_.find(samples);
    if (found != trials_.end()) return found->second;
    const OnDevice here(id, {}, {.exact = o_.exact});
    return trials_.emplace(samples, try_module(o_, values_, samples, here.device())).first->second;
  }

  template <class View>
  static at::Tensor folded(const Frame& f, const ModuleValue& value, const at::Tensor& start,
                           const View& view) {
    if (!value.tensor.is_floating_point()) return view(f.statistic(value.key, 0));
    const at::Tensor exact = start.to(at::kDouble), moved = at::zeros_like(exact);
    for (int64_t s = 0; s < f.slices; ++s)
      moved.add_(view(f.statistic(value.key, s)).to(at::kDouble) - exact);
    return (exact + moved / static_cast<double>(f.slices)).to(start.scalar_type());
  }

  void point_at_buffers(const Frame& f) const {
    const at::Device where = torch_device(f.device->id());
    for (const ModuleValue& value : values_.untrained)
      point_at(value.tensor, f.buffer(value.key), value.tensor.scalar_type(), where);
  }

  std::shared_ptr<Lease> borrow() const {
    std::shared_ptr<Lease> lease = lease_.lock();
    if (lease == nullptr) lease_ = lease = std::make_shared<Lease>(values_);
    return lease;
  }

  Tape& tape_of(const Frame& f) const {
    if (*f.graph == nullptr) {
      auto tape = std::make_shared<Tape>();
      tape->lease = borrow();
      *f.graph = std::move(tape);
    }
    return *static_cast<Tape*>(f.graph->get());
  }

  at::Tensor input_of(const Frame& f, bool with_graph) const {
    const at::Device where = torch_device(f.device->id());
    const std::vector<int64_t> sizes = batched(f.slice.samples, o_.in);
    if (!o_.reads_batch) {
      check_count(f.in("hidden"), f.slice.samples, "the previous block outputs");
      return view_of(f.in("hidden"), sizes, scalar_type(o_.type), where).requires_grad_(with_graph);
    }
    check_count(f.batch("inputs"), f.slice.samples, "the data has");
    const at::Tensor words = view_of(f.batch("inputs"), sizes, o_.tokens ? at::kInt : at::kFloat, where);
    return words.to(o_.tokens ? at::kLong : scalar_type(o_.type));
  }

  void check_count(const Tensor& given, int64_t samples, const char* who) const {
    if (given.numel() == samples * o_.in.numel()) return;
    throw base::ConfigError(175, "block " + o_.name + " takes " + o_.in.to_string() + " per sample, " + who +
                                     " " + std::to_string(given.numel() / samples) + " values");
  }

  // Runs the module. In training its statistics are this slice's own meanwhile, and afterwards those of the
  // step's beginning again, which is what the graph reads in the backward pass.
  at::Tensor call(const Frame& f, const at::Tensor& input) const {
    struct Restore {
      const ModuleSegment& segment;
      const Frame& frame;
      ~Restore() { segment.point_at_buffers(frame); }
    };
    if (o_.module->is_training() != f.slice.training) o_.module->train(f.slice.training);
    if (!f.slice.training) return o_.forward(input);
    const Restore restore{*this, f};
    const at::Device where = torch_device(f.device->id());
    for (const ModuleValue& value : values_.untrained) {
      const at::ScalarType type = value.tensor.scalar_type();
      const Tensor own = f.statistic(value.key);
      view_of(own, value.tensor.sizes(), type, where)
          .copy_(view_of(f.buffer(value.key), value.tensor.sizes(), type, where));
      point_at(value.tensor, own, type, where);
    }
    return draw_and_call(f, input);
  }

  // What is drawn at random depends on step, slice and block alone.
  at::Tensor draw_and_call(const Frame& f, const at::Tensor& input) const {
    uint64_t seed = base::hash_combine(site_, f.on_host->seed);
    seed = base::hash_combine(base::hash_combine(seed, f.on_host->step), f.slice.slice);
    at::manual_seed(seed);
    return o_.forward(input);
  }

  // A gradient that autograd did not make is zero.
  enum class Into : uint8_t { nothing, sum };
  static void write(const Tensor& to, const at::Tensor& gradient, at::ScalarType type, Into into,
                    at::Device where) {
    if (!gradient.defined()) {
      if (into == Into::nothing) view_of(to, {to.numel()}, type, where).zero_();
      return;
    }
    const at::Tensor target = view_of(to, gradient.sizes(), type, where);
    into == Into::sum ? target.add_(gradient) : target.copy_(gradient);
  }

  AutogradOptions o_;
  ModuleValues values_;
  uint64_t site_;
  std::vector<ParamSpec> params_;
  std::vector<BufferSpec> buffers_;
  std::vector<at::Tensor> first_params_, first_buffers_;
  mutable std::map<int64_t, Trial> trials_;  // by samples of a slice: a plan may be asked for again
  mutable std::weak_ptr<Lease> lease_;
};

}  // namespace

Block autograd_block(AutogradOptions options) {
  if (options.module == nullptr || !options.forward || options.name.empty()) {
    throw base::ConfigError(172, "an autograd block needs a name, a module and a forward function");
  }
  std::string name = options.name;
  return block_of(std::move(name), std::make_unique<ModuleSegment>(std::move(options)));
}

}  // namespace lockstep::model
