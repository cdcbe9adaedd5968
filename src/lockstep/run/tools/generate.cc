#include "lockstep/run/tools/generate.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "lockstep/base/philox.h"

namespace lockstep::run {

using device::CopyKind;
using device::DType;
using device::Tensor;

namespace {

program::Program compile_decode(const Plan& plan) {
  program::Layout layout = plan.layout;
  layout.slice = {1, 1};
  layout.slices = layout.strands = 1;
  layout.training = false;
  return program::compile(*plan.model, layout);
}

// A token from the softmax of logits / temperature among the k likeliest, by one uniform draw.
int32_t draw(const std::vector<float>& logits, int64_t vocab, const SamplingOptions& options, uint64_t n) {
  std::vector<int32_t> order(static_cast<size_t>(vocab));
  std::iota(order.begin(), order.end(), 0);
  const auto likelier = [&](int32_t a, int32_t b) {
    return logits[static_cast<size_t>(a)] != logits[static_cast<size_t>(b)]
               ? logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)]
               : a < b;
  };
  const int64_t k = options.top_k > 0 ? std::min(options.top_k, vocab) : vocab;
  if (k < vocab)
    std::partial_sort(order.begin(), order.begin() + k, order.end(), likelier);
  else
    std::sort(order.begin(), order.end(), likelier);
  if (options.temperature <= 0) return order[0];
  const double top = logits[static_cast<size_t>(order[0])];
  std::vector<double> weights;
  double total = 0;
  for (int64_t i = 0; i < k; ++i) {
    weights.push_back(
        std::exp((logits[static_cast<size_t>(order[static_cast<size_t>(i)])] - top) / options.temperature));
    total += weights.back();
  }
  const base::Random4 random = base::philox(base::mix64(options.seed), n, 0x67656E);
  double left = (static_cast<double>(random.x) + 0.5) / 4294967296.0 * total;
  for (int64_t i = 0; i < k; ++i) {
    left -= weights[static_cast<size_t>(i)];
    if (left <= 0) return order[static_cast<size_t>(i)];
  }
  return order[static_cast<size_t>(k) - 1];
}

}  // namespace

Generator::Generator(Session& session)
    : session_(session),
      program_(compile_decode(session.plan)),
      memory_(std::make_unique<Memory>(*session.plan.device, program_, session.memory.get())) {
  device::Device& device = *session.plan.device;
  const model::Model& model = *session.plan.model;
  binder_ = std::make_unique<Binder>(BindContext{model,
                                                 program_,
                                                 *memory_,
                                                 device,
                                                 {{program::Lane::compute, session.executor->stream()},
                                                  {program::Lane::host, session.executor->stream()}},
                                                 staging_,
                                                 executor_options(session)});
  const recipe::Recipe::Model& sizes = session.plan.recipe().model;
  const int64_t width = sizes.kv_heads.value * sizes.head_dim.value;
  for (const program::Instruction& i : program_.instructions) {
    if (i.is<program::LoadSlice>()) input_ = memory_->tensor(i.writes[0].buffer);
    if (!i.runs(program::Pass::forward) && !i.runs(program::Pass::loss)) continue;
    Call call{&binder_->segment_of(i), binder_->frame(i)};
    if (call.segment->name() == "attention") {
      for (void** memory : {&call.frame->cache.keys, &call.frame->cache.values}) {
        *memory = device.allocate(model.context * width * device::size_of(model.compute));
        caches_.push_back(*memory);
      }
      call.frame->cache.capacity = model.context;
    }
    if (i.runs(program::Pass::loss)) logits_ = call.frame->scratch("logits");
    calls_.push_back(std::move(call));
  }
}

Generator::~Generator() {
  for (void* cache : caches_) session_.plan.device->free(cache);
}

const std::vector<float>& Generator::feed(int32_t token, int64_t position) {
  device::Device& device = *session_.plan.device;
  const device::Stream stream = session_.executor->stream();
  device.copy(input_.data, &token, sizeof(token), CopyKind::host_to_device, stream);
  for (const Call& call : calls_) {
    call.frame->slice.first_position = position;
    call.segment->decode(*call.frame);
  }
  const int64_t vocab = session_.plan.model->vocab;
  host_logits_.resize(static_cast<size_t>(vocab));
  std::vector<char> raw(static_cast<size_t>(vocab * device::size_of(logits_.dtype)));
  device.copy(raw.data(), logits_.data, static_cast<int64_t>(raw.size()), CopyKind::device_to_host, stream);
  device.synchronize(stream);
  kernels::kernels_for(device::Kind::cpu)
      .cast({logits_.dtype, DType::f32, vocab, raw.data(), host_logits_.data()}, {});
  return host_logits_;
}

void Generator::run(const std::vector<int32_t>& prompt, const SamplingOptions& options,
                    const std::function<bool(int32_t)>& emit) {
  const int64_t context = session_.plan.model->context;
  const int64_t vocab = std::min<int64_t>(session_.plan.dataset->vocab(), session_.plan.model->vocab);
  std::vector<int32_t> text = prompt;
  int64_t position = 0;
  const auto read_from = [&](size_t begin) {
    session_.parameters->fill_tables_for(static_cast<int64_t>(text.size() - begin));
    position = 0;
    for (size_t i = begin; i < text.size(); ++i) feed(text[i], position++);
  };
  read_from(static_cast<int64_t>(text.size()) > context ? text.size() - static_cast<size_t>(context) : 0);
  for (int64_t n = 0; n < options.tokens; ++n) {
    const int32_t token = draw(host_logits_, vocab, options, static_cast<uint64_t>(n));
    if (!emit(token)) return;
    text.push_back(token);
    if (position == context)
      read_from(text.size() - static_cast<size_t>(std::max<int64_t>(1, context / 2)));
    else
      feed(token, position++);
  }
}

}  // namespace lockstep::run
