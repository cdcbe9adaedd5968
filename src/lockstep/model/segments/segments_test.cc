// Each segment by itself, on every device: what its backward passes say of inputs and weights, against
// differences of what its forward gives. Models are walked segment by segment, so that each sees real values.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <set>

#include "lockstep/base/philox.h"
#include "lockstep/base/round.h"
#include "lockstep/kernels/testing.h"
#include "lockstep/model/families/family.h"
#include "lockstep/model/frame.h"
#include "lockstep/model/layout.h"
#include "lockstep/model/segments/norm_linear.h"
#include "lockstep/model/segments/parts.h"

namespace lockstep::model {
namespace {

using kernels::testing::Memory;
using Floats = std::vector<float>;

constexpr SliceShape kShape{.samples = 2, .seq_len = 6};

// Random numbers around zero, the same ones for the same name.
Floats random_floats(const std::string& name, int64_t count, float deviation) {
  Floats values(static_cast<size_t>(count));
  const uint64_t key = std::hash<std::string>()(name);
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = deviation * 3.4f * (base::unit_float(base::philox(key, i, 0).x) - 0.5f);
  return values;
}

// The segments of a model, one after the other, on one device.
class Walk {
 public:
  Walk(device::Device& device, const recipe::Recipe& recipe)
      : device_(device),
        kernels_(kernels::kernels_for(device.id().kind)),
        recipe_(recipe),
        model_(build_model(recipe, DType::f32)),
        curve_(activation_of(recipe.model)) {
    kernels::StepInputs inputs;
    inputs.valid_tokens = static_cast<double>(kShape.tokens());
    inputs_ = make({static_cast<int64_t>(sizeof(inputs))}, DType::u8);
    state_ = make({static_cast<int64_t>(sizeof(kernels::StepState))}, DType::u8);
    loss_ = make({1}, DType::f64);
    const kernels::StepState state;
    write(inputs_, &inputs);
    write(state_, &state);
    std::vector<int32_t> tokens(static_cast<size_t>(kShape.tokens()));
    for (const char* field : {"inputs", "labels"}) {
      for (size_t i = 0; i < tokens.size(); ++i)
        tokens[i] = static_cast<int32_t>((i * 7 + *field) % static_cast<size_t>(model_.vocab));
      batch_[field] = make({kShape.samples, kShape.seq_len}, DType::i32);
      write(batch_[field], tokens.data());
    }
  }

  // Names of the segments whose gradients were compared.
  std::set<std::string> run() {
    std::set<std::string> seen;
    for (const Block& block : model_.blocks) {
      for (const auto& segment : block.segments()) {
        SCOPED_TRACE(block.name() + "." + segment->name());
        one(*segment);
        seen.insert(segment->name());
      }
    }
    return seen;
  }

 private:
  struct Edge {
    Tensor values;
    bool gradient = true;
  };

  Tensor make(const Shape& shape, DType type) {
    pool_.emplace_back(device_, std::max<int64_t>(1, shape.numel()), type);
    device_.fill_zero(pool_.back().data(), shape.numel() * device::size_of(type), nullptr);
    return {pool_.back().data(), type, shape};
  }
  void write(const Tensor& to, const void* host) {
    device_.copy(to.data, host, to.bytes(), device::CopyKind::host_to_device, nullptr);
    device_.synchronize(nullptr);
  }
  template <class T>
  std::vector<T> read(const Tensor& from) {
    std::vector<T> host(static_cast<size_t>(from.numel()));
    device_.copy(host.data(), from.data, from.bytes(), device::CopyKind::device_to_host, nullptr);
    device_.synchronize(nullptr);
    return host;
  }

  void one(const Segment& segment) {
    const SegmentPlan plan = segment.plan(kShape, kernels_);
    Frame f = frame(segment, plan);
    std::map<std::string, Tensor> bound;
    const auto bind = [&](const std::string& role, const Tensor& tensor) {
      f.bind(role, bound[role] = tensor);
    };
    std::vector<std::string> reads = plan.inputs;
    reads.insert(reads.end(), plan.passes.begin(), plan.passes.end());
    for (const std::string& name : reads) bind("in." + name, edges_.at(name).values);
    for (const ValueSpec& spec : plan.outputs) bind("out." + spec.name, make(spec.shape, spec.dtype));
    for (const ValueSpec& spec : plan.saves) bind("save." + spec.name, make(spec.shape, spec.dtype));
    for (const ValueSpec& spec : plan.leaves) bind("left." + spec.name, make(spec.shape, spec.dtype));
    for (const auto& [part, spec] : plan.scratch) {
      if (!bound.contains("scratch." + spec.name)) bind("scratch." + spec.name, make(spec.shape, spec.dtype));
    }
    bind_weights(segment, bound, f);
    bind_gradients(plan, reads, bound, f);

    const std::function<double()> value = [&] {
      restore_curve(reads);
      segment.forward(f);
      return plan.loss ? read<double>(loss_)[0] / static_cast<double>(kShape.tokens())
                       : projected(plan, bound);
    };
    value();
    if (!plan.loss) {
      if (!plan.inputs.empty() || !plan.passes.empty() || !plan.leaves.empty()) segment.backward_input(f);
      if (!plan.weight_needs.empty()) segment.backward_weight(f);
    }
    for (const std::string& name : reads) {
      if (edges_.at(name).gradient)
        compare(name, bound.at("in." + name), as_edge(name, bound.at("din." + name)), value);
    }
    for (const ParamSpec& param : segment.params())
      compare(param.key, bound.at("weight." + param.key), bound.at("grad." + param.key), value);
    value();  // as it was before the comparisons

    for (const std::string& name : plan.inputs) edges_.erase(name);
    for (const ValueSpec& spec : plan.outputs)
      edges_[spec.name] = {bound.at("out." + spec.name), spec.gradient};
  }

  Frame frame(const Segment& segment, const SegmentPlan& plan) {
    Frame f;
    f.kernels = &kernels_;
    f.device = &device_;
    f.slice = {.samples = kShape.samples, .seq_len = kShape.seq_len};
    f.inputs = inputs_.as<kernels::StepInputs>();
    f.state = state_.as<kernels::StepState>();
    f.loss = loss_.as<double>();
    f.launch.workspace_bytes = plan.workspace;
    f.launch.workspace = make({plan.workspace}, DType::u8).data;
    for (const std::string& field : plan.batch) f.bind("batch." + field, batch_.at(field));
    rope_table_ = {};
    std::vector<std::vector<char>> host;
    std::vector<Tensor> tables;
    for (const BufferSpec& spec : segment.buffers()) {
      host.emplace_back(static_cast<size_t>(spec.shape.numel() * device::size_of(spec.dtype)));
      tables.push_back({host.back().data(), spec.dtype, spec.shape});
    }
    segment.fill_buffers(tables, kShape.seq_len);
    for (size_t k = 0; k < tables.size(); ++k) {
      const Tensor table = make(tables[k].shape, tables[k].dtype);
      write(table, tables[k].data);
      f.bind("buffer." + segment.buffers()[k].key, table);
      if (segment.buffers()[k].key == "rope") rope_table_ = table;
    }
    return f;
  }

  // In one flat run each, as a block has them: joined ones follow each other without a gap.
  void bind_weights(const Segment& segment, std::map<std::string, Tensor>& bound, Frame& f) {
    const std::vector<ParamSpec> params = segment.params();
    std::vector<int64_t> offsets;
    int64_t end = 0;
    for (const ParamSpec& param : params) {
      offsets.push_back(param.joined ? end : base::round_up(end, kParamAlignment));
      end = offsets.back() + param.shape.numel();
    }
    const Tensor weights = make({end}, DType::f32), gradients = make({end}, DType::f32);
    for (size_t k = 0; k < params.size(); ++k) {
      Floats values = random_floats(params[k].name, params[k].shape.numel(), 0.3f);
      for (float& value : values) value += params[k].init.kind == Init::Kind::ones ? 1.0f : 0.0f;
      for (const auto& [role, flat] : {std::pair("weight.", weights), std::pair("grad.", gradients)}) {
        const std::string name = role + params[k].key;
        f.bind(name, bound[name] = {flat.as<float>() + offsets[k], DType::f32, params[k].shape});
      }
      write(bound["weight." + params[k].key], values.data());
    }
  }

  // Random ones for what it gives and lets pass, room for those of what it takes.
  void bind_gradients(const SegmentPlan& plan, const std::vector<std::string>& reads,
                      std::map<std::string, Tensor>& bound, Frame& f) {
    const auto bind = [&](const std::string& role, const Tensor& tensor) {
      f.bind(role, bound[role] = tensor);
    };
    const auto random = [&](const std::string& name, const Tensor& like) {
      bind("dout." + name, make(like.shape, like.dtype));
      write(bound["dout." + name], random_floats("d" + name, like.numel(), 1).data());
    };
    for (const ValueSpec& spec : plan.outputs) {
      if (spec.gradient) random(spec.name, bound.at("out." + spec.name));
    }
    for (const std::string& name : plan.passes) random(name, bound.at("in." + name));
    const std::map<std::string, std::string> same(plan.same.begin(), plan.same.end());
    for (const bool shared : {false, true}) {
      for (const std::string& name : reads) {
        const auto other = same.find("din." + name);
        if (!edges_.at(name).gradient || (other != same.end()) != shared) continue;
        const Tensor& like = bound.at("in." + name);
        bind("din." + name, shared ? bound.at(other->second) : make(like.shape, like.dtype));
      }
    }
  }

  // The edge qkv holds rotated queries and keys, its gradient is of what they were before.
  Tensor as_edge(const std::string& name, const Tensor& gradient) {
    if (name != "qkv" || !rope_table_) return gradient;
    const Tensor copy = make(gradient.shape, gradient.dtype);
    write(copy, read<float>(gradient).data());
    const auto& m = recipe_.model;
    kernels_.rope(
        {.shape = {DType::f32, kShape.samples, kShape.seq_len, m.heads, m.kv_heads.value, m.head_dim.value},
         .qkv = copy.data,
         .table = rope_table_.as<float>(),
         .rotary_dim = rope_table_.shape[1]},
        {});
    return copy;
  }

  // What is given and let pass, along the random gradients.
  double projected(const SegmentPlan& plan, const std::map<std::string, Tensor>& bound) {
    double sum = 0;
    const auto add = [&](const Tensor& values, const Tensor& along) {
      const Floats x = read<float>(values), d = read<float>(along);
      for (size_t i = 0; i < x.size(); ++i) sum += static_cast<double>(x[i]) * d[i];
    };
    for (const ValueSpec& spec : plan.outputs) {
      if (spec.gradient) add(bound.at("out." + spec.name), as_edge(spec.name, bound.at("dout." + spec.name)));
    }
    for (const std::string& name : plan.passes) add(bound.at("in." + name), bound.at("dout." + name));
    return sum;
  }

  // An edge without a gradient is the nonlinearity of "linear", which has one.
  void restore_curve(const std::vector<std::string>& reads) {
    for (const std::string& name : reads) {
      const Edge& edge = edges_.at(name);
      if (edge.gradient || edge.values.numel() == 1) continue;
      const Tensor& linear = edges_.at("linear").values;
      kernels_.activate({curve_, DType::f32, linear.numel(), linear.data, edge.values.data}, {});
    }
  }

  // Along a random direction that goes with the gradient, so that one difference tests all of it.
  void compare(const std::string& name, const Tensor& values, const Tensor& gradient,
               const std::function<double()>& value) {
    const Floats before = read<float>(values), slopes = read<float>(gradient);
    const Floats noise = random_floats("along " + name, values.numel(), 0.3f);
    Floats along(before.size()), moved(before.size());
    double slope = 0, length = 0;
    for (size_t i = 0; i < before.size(); ++i) {
      along[i] = noise[i] + (slopes[i] > 0 ? 0.5f : slopes[i] < 0 ? -0.5f : 0.0f);
      slope += static_cast<double>(along[i]) * slopes[i];
      length += static_cast<double>(along[i]) * along[i];
    }
    const double step = 0.02 / std::sqrt(length);
    const auto at = [&](double t) {
      for (size_t i = 0; i < before.size(); ++i) moved[i] = before[i] + static_cast<float>(t * along[i]);
      write(values, moved.data());
      return value();
    };
    // Richardson's rule: the error falls with the fourth power of the step.
    const double measured = (8 * (at(step) - at(-step)) - (at(2 * step) - at(-2 * step))) / (12 * step);
    write(values, before.data());
    EXPECT_NE(slope, 0) << name;
    EXPECT_NEAR(measured, slope, 0.005 * std::abs(slope)) << name;
  }

  device::Device& device_;
  const kernels::Kernels& kernels_;
  const recipe::Recipe& recipe_;
  const Model model_;
  const kernels::ActivationKind curve_;
  std::vector<Memory> pool_;
  Tensor inputs_, state_, loss_;
  Tensor rope_table_;  // of the segment at hand; none: it does not rotate
  std::map<std::string, Tensor> batch_;
  std::map<std::string, Edge> edges_;
};

struct Row {
  const char* name;
  std::vector<std::string> words;
};
void PrintTo(const Row& row, std::ostream* out) { *out << row.name; }

class Segments : public testing::TestWithParam<std::tuple<device::Kind, Row>> {};

TEST_P(Segments, GradientsAreSlopesOfWhatForwardGives) {
  const auto& [kind, row] = GetParam();
  if (kind == device::Kind::cuda && device::cuda_availability().devices == 0)
    GTEST_SKIP() << "no CUDA here: " << device::cuda_availability().why_not;
  std::vector<std::string> words = {"model.layers=2", "model.hidden=16", "model.heads=2",
                                    fmt::format("data.seq_len={}", kShape.seq_len)};
  words.insert(words.end(), row.words.begin(), row.words.end());
  recipe::Resolved resolved = recipe::read_recipe({.file = "", .overrides = words});
  resolve_model(resolved, 32);
  const std::unique_ptr<device::Device> device = device::open({kind, 0});
  const std::set<std::string> seen = Walk(*device, resolved.recipe).run();
  EXPECT_TRUE(seen.contains("embed") && seen.contains("up") && seen.contains("down") &&
              seen.contains("logits"));
}

// A norm that gives what it gives twice copies it, and adds up what comes back.
TEST(NormCost, TwiceGivenIsCopiedAndAdded) {
  const auto bytes = [](const std::string& again, Part part) {
    NormOptions options{.width = 16, .name = "n"};
    options.again = again;
    return make_norm("norm", options, DType::bf16, Parts{})->cost(kShape, part).bytes;
  };
  const int64_t pass = kShape.tokens() * 16 * 2;
  for (const auto& [part, passes] :
       {std::pair{Part::forward, 2}, {Part::backward_input, 3}, {Part::backward_weight, 0}})
    EXPECT_EQ(bytes("twice", part) - bytes("", part), passes * pass);
}

INSTANTIATE_TEST_SUITE_P(
    OnEveryDevice, Segments,
    testing::Combine(
        testing::Values(device::Kind::cpu, device::Kind::cuda),
        testing::Values(
            Row{"gpt2", {"model.family=gpt2"}},
            Row{"gpt2_relu_untied", {"model.family=gpt2", "model.activation=relu", "model.tied=false"}},
            Row{"llama", {"model.family=llama"}},
            Row{"llama_grouped_biases",
                {"model.family=llama", "model.kv_heads=1", "model.attention_bias=true",
                 "model.mlp_bias=true"}},
            Row{"llama_wide_heads_in_chunks",
                {"model.family=llama", "model.head_dim=12", "memory.logits_chunk=8"}},
            Row{"mistral_window", {"model.family=mistral", "model.sliding_window=3"}},
            Row{"qwen2", {"model.family=qwen2", "model.kv_heads=1"}},
            Row{"qwen3_wide_heads", {"model.family=qwen3", "model.head_dim=10", "model.kv_heads=1"}},
            Row{"gemma2_capped",
                {"model.family=gemma2", "model.sliding_window=2", "model.attn_softcap=0.7",
                 "model.final_softcap=1.5", "model.query_scalar=5"}},
            Row{"gemma3",
                {"model.family=gemma3", "model.sliding_window=4", "model.layer_types=sliding,full",
                 "model.final_softcap=2"}},
            Row{"phi", {"model.family=phi", "model.kv_heads=1"}},
            Row{"phi_whole_rotary", {"model.family=phi", "model.partial_rotary=1"}},
            Row{"phi3_grouped", {"model.family=phi3", "model.kv_heads=1"}},
            Row{"olmo2", {"model.family=olmo2", "model.kv_heads=1"}},
            Row{"smollm3", {"model.family=smollm3", "model.no_rope_every=2"}},
            Row{"gpt_neox", {"model.family=gpt_neox"}},
            Row{"gpt_neox_one_after_the_other", {"model.family=gpt_neox", "model.parallel_residual=false"}},
            Row{"mlp", {"model.family=mlp"}}, Row{"gpt2_lora", {"tune.method=lora"}},
            Row{"gpt2_lora_with_dropout", {"tune.method=lora", "tune.dropout=0.2", "tune.rank=3"}},
            Row{"gpt2_relu_lora", {"tune.method=lora", "model.activation=relu", "model.dropout=0.1"}},
            Row{"llama_lora", {"model.family=llama", "tune.method=lora", "tune.scaling=sqrt"}},
            Row{"llama_lora_of_q_and_v",
                {"model.family=llama", "model.kv_heads=1", "tune.method=lora", "tune.targets=q_proj,v_proj",
                 "tune.rank=5"}},
            Row{"qwen3_lora", {"model.family=qwen3", "model.kv_heads=1", "tune.method=lora"}},
            Row{"gemma2_lora", {"model.family=gemma2", "tune.method=lora", "tune.targets=mlp.*"}},
            Row{"phi_lora", {"model.family=phi", "tune.method=lora"}},
            Row{"phi3_lora_grouped", {"model.family=phi3", "model.kv_heads=1", "tune.method=lora"}},
            Row{"olmo2_lora", {"model.family=olmo2", "tune.method=lora"}},
            Row{"gpt_neox_lora", {"model.family=gpt_neox", "tune.method=lora", "tune.dropout=0.1"}},
            Row{"mlp_lora", {"model.family=mlp", "tune.method=lora"}})),
    [](const auto& row) {
      return std::string(std::get<1>(row.param).name) +
             (std::get<0>(row.param) == device::Kind::cuda ? "_cuda" : "_cpu");
    });

}  // namespace
}  // namespace lockstep::model
