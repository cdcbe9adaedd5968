#include "lockstep/model/modules/autograd_torch.h"

#include <ATen/Context.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include <cstring>
#include <map>

#include "lockstep/base/error.h"
#include "lockstep/base/hash.h"
#include "lockstep/model/modules/module_torch.h"
#include "lockstep/model/modules/module_trial_torch.h"

// libgomp comes with LibTorch; its header does not.
extern "C" {
void omp_set_num_threads(int);
int omp_get_max_threads(void);
}

namespace lockstep::model {

namespace {

// One OpenMP thread for what this thread starts while it lives.
class OneThread {
 public:
  explicit OneThread(bool wanted) : before_(omp_get_max_threads()) {
    if (wanted) omp_set_num_threads(1);
  }
  ~OneThread() { omp_set_num_threads(before_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_;
};

// What forward keeps of a slice until backward_input, and that until backward_weight.
struct Tape {
  std::shared_ptr<Lease> lease;
  at::Tensor input, output;
  std::vector<at::Tensor> gradients;  // in the order of the trained values
};

class ModuleSegment : public Segment {
 public:
  explicit ModuleSegment(AutogradOptions options)
      : o_(std::move(options)), values_(values_of(o_)), site_(base::hash_text(o_.name)) {
    for (const ModuleValue& value : values_.trained) {
      first_params_.push_back(value.tensor.detach().to(at::kFloat, false, true).contiguous());
      params_.push_back({.key = value.key,
                         .name = o_.name + "." + value.key,
                         .shape = shape_of(value.tensor),
                         .init = {Init::Kind::given, 0, first_params_.back().const_data_ptr<float>()},
                         .decay = value.tensor.dim() > 1});
    }
    for (const ModuleValue& value : values_.untrained) {
      buffers_.push_back({.key = value.key,
                          .name = o_.name + "." + value.key,
                          .dtype = dtype_of(value.tensor),
                          .shape = shape_of(value.tensor),
                          .constant = false});
      first_buffers_.push_back(value.tensor.detach().clone().contiguous());
    }
  }

  std::string name() const override { return "module"; }
  std::vector<ParamSpec> params() const override { return params_; }
  std::vector<BufferSpec> buffers() const override { return buffers_; }

  SegmentPlan plan(const SliceShape& shape, const kernels::Kernels& kernels) const override {
    if (&kernels != &kernels::kernels_for(device::Kind::cpu)) {
      throw base::ConfigError(
          174, "block " + o_.name + " is a LibTorch module, which runs on the CPU: set run.device=cpu");
    }
    const Trial& trial = tried(shape.samples);
    const auto held_by_torch = [](const char* name, int64_t bytes) {
      return ValueSpec{name, DType::u8, {bytes}, true};
    };
    SegmentPlan plan;
    (o_.reads_batch ? plan.batch : plan.takes) = {o_.reads_batch ? "inputs" : "hidden"};
    plan.gives = {{"hidden", o_.type, {shape.samples, o_.out.numel()}}};
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

  void forward(const Frame& f) const override {
    const std::shared_ptr<Lease> lease = borrow();
    for (const ModuleValue& value : values_.trained)
      point_at(value.tensor, f.weight(value.key), scalar_type(o_.type));
    for (const ModuleValue& value : values_.untrained) {
      point_at(value.tensor, f.buffer(value.key), value.tensor.scalar_type());
    }
    Tape* tape = f.graph != nullptr ? &tape_of(f) : nullptr;
    const bool with_graph = tape != nullptr && f.slice.training;
    const c10::AutoGradMode mode(with_graph);
    const OneThread threads(o_.exact);
    const at::Tensor input = input_of(f, with_graph);
    const at::Tensor output = call(f, input);
    view_of(f.out("hidden"), batched(f.slice.samples, o_.out), scalar_type(o_.type)).copy_(output.detach());
    if (!with_graph) return;
    tape->input = input;
    tape->output = output;
  }

  void backward_input(const Frame& f) const override {
    Tape& tape = tape_of(f);
    const OneThread threads(o_.exact);
    std::vector<at::Tensor> wanted, found;
    if (!o_.reads_batch) wanted.push_back(tape.input);
    for (const ModuleValue& value : values_.trained) wanted.push_back(value.tensor);
    found.resize(wanted.size());
    const at::Tensor dout = view_of(f.dout("hidden"), tape.output.sizes(), scalar_type(o_.type));
    if (tape.output.requires_grad()) {
      found = torch::autograd::grad({tape.output}, wanted, {dout.to(tape.output.scalar_type())}, false, false,
                                    true);
    }
    tape.input = tape.output = at::Tensor();  // the graph goes
    if (!o_.reads_batch) {
      write(f.din("hidden"), found.front(), scalar_type(o_.type), false);
      found.erase(found.begin());
    }
    tape.gradients = std::move(found);
  }

  void backward_weight(const Frame& f) const override {
    Tape& tape = tape_of(f);
    for (size_t k = 0; k < params_.size(); ++k) {
      write(f.grad(params_[k].key), tape.gradients[k], at::kFloat, f.accumulate);
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
    if (f.state->apply == 0) return;
    for (const ModuleValue& value : values_.untrained) {
      const auto view = [&](const Tensor& memory) {
        return view_of(memory, value.tensor.sizes(), value.tensor.scalar_type());
      };
      const at::Tensor start = view(f.buffer(value.key));
      if (!value.tensor.is_floating_point()) {
        start.copy_(view(f.statistic(value.key, 0)));
        continue;
      }
      const at::Tensor exact = start.to(at::kDouble), moved = at::zeros_like(exact);
      for (int64_t s = 0; s < f.slices; ++s)
        moved.add_(view(f.statistic(value.key, s)).to(at::kDouble) - exact);
      start.copy_(exact + moved / static_cast<double>(f.slices));
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
  const Trial& tried(int64_t samples) const {
    const auto found = trials_.find(samples);
    return found != trials_.end() ? found->second
                                  : trials_.emplace(samples, try_module(o_, values_, samples)).first->second;
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
    const std::vector<int64_t> sizes = batched(f.slice.samples, o_.in);
    if (!o_.reads_batch) {
      check_count(f.in("hidden"), f.slice.samples, "the block before it gives");
      return view_of(f.in("hidden"), sizes, scalar_type(o_.type)).requires_grad_(with_graph);
    }
    check_count(f.batch("inputs"), f.slice.samples, "the data gives");
    const at::Tensor words = view_of(f.batch("inputs"), sizes, o_.tokens ? at::kInt : at::kFloat);
    return words.to(o_.tokens ? at::kLong : scalar_type(o_.type));
  }

  void check_count(const Tensor& given, int64_t samples, const char* who) const {
    if (given.numel() == samples * o_.in.numel()) return;
    throw base::ConfigError(175, "block " + o_.name + " takes " + o_.in.to_string() + " a sample, " + who +
                                     " " + std::to_string(given.numel() / samples) + " values");
  }

  // Runs the module. In training its statistics are this slice's own meanwhile, and afterwards those of the
  // step's beginning again, which is what the graph reads in the backward pass.
  at::Tensor call(const Frame& f, const at::Tensor& input) const {
    struct Restore {
      const ModuleSegment& segment;
      const Frame& frame;
      ~Restore() {
        for (const ModuleValue& value : segment.values_.untrained) {
          point_at(value.tensor, frame.buffer(value.key), value.tensor.scalar_type());
        }
      }
    };
    if (o_.module->is_training() != f.slice.training) o_.module->train(f.slice.training);
    if (!f.slice.training) return o_.forward(input);
    const Restore restore{*this, f};
    for (const ModuleValue& value : values_.untrained) {
      const Tensor own = f.statistic(value.key), start = f.buffer(value.key);
      std::memcpy(own.data, start.data, static_cast<size_t>(own.bytes()));
      point_at(value.tensor, own, value.tensor.scalar_type());
    }
    uint64_t seed = base::hash_combine(site_, f.inputs->seed);
    seed = base::hash_combine(base::hash_combine(seed, f.inputs->step), f.slice.slice);
    at::manual_seed(seed);
    return o_.forward(input);
  }

  // A gradient that autograd did not make is zero.
  static void write(const Tensor& to, const at::Tensor& gradient, at::ScalarType type, bool accumulate) {
    if (!gradient.defined()) {
      if (!accumulate) std::memset(to.data, 0, static_cast<size_t>(to.bytes()));
      return;
    }
    const at::Tensor target = view_of(to, gradient.sizes(), type);
    accumulate ? target.add_(gradient) : target.copy_(gradient);
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
