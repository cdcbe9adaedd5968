#include "lockstep/run/tools/decoder.h"
#include "lockstep/model/families/family.h"

#include <fmt/format.h>

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/round.h"
#include "lockstep/device/thread_pool.h"

namespace lockstep::run {

using device::CopyKind;
using device::DType;

namespace {

program::Program compile_decode(const Plan& plan, int64_t rows) {
  program::Layout layout = plan.layout;
  layout.slice = {rows, 1};
  layout.slices = layout.strands = 1;
  layout.training = false;
  return program::compile(*plan.model, layout);
}

// Slots begin on a cache line whatever the width, so that products inside them have the same bits in each.
DecodeSizes fitted(DecodeSizes sizes, int64_t context, bool cuda) {
  sizes.capacity = base::round_up(std::clamp<int64_t>(sizes.capacity, 1, context), 16);
  sizes.rows = std::max(std::min(sizes.rows, sizes.capacity * sizes.slots), sizes.slots);
  if (cuda) ++sizes.slots;
  return sizes;
}

bool tables_by_length(const model::Model& model) {
  for (const model::Block& block : model.blocks) {
    for (const auto& segment : block.segments()) {
      for (const model::BufferSpec& spec : segment->buffers()) {
        if (spec.by_length) return true;
      }
    }
  }
  return false;
}

}  // namespace

Decoder::Decoder(Session& session, const DecodeSizes& sizes)
    : session_(session),
      sizes_(
          fitted(sizes, session.plan.model->context, session.plan.device->id().kind == device::Kind::cuda)),
      pads_(session.plan.device->id().kind == device::Kind::cuda),
      by_length_(tables_by_length(*session.plan.model)),
      program_(compile_decode(session.plan, sizes_.rows)),
      memory_(std::make_unique<Memory>(*session.plan.device, program_, session.memory.get())) {
  device::Device& device = *session.plan.device;
  binder_ = std::make_unique<Binder>(BindContext{*session.plan.model,
                                                 program_,
                                                 *memory_,
                                                 device,
                                                 {{program::Lane::compute, session.executor->stream()},
                                                  {program::Lane::host, session.executor->stream()}},
                                                 staging_,
                                                 executor_options(session)});
  std::function<void()> dequantize;
  for (const program::Instruction& i : program_.instructions) {
    if (i.is<program::LoadSlice>()) input_ = memory_->tensor(i.writes[0].buffer);
    if (i.is<program::DequantizeWeights>()) dequantize = binder_->bind(i);
    if (!i.runs(program::Pass::forward) && !i.runs(program::Pass::loss)) continue;
    calls_.push_back({&binder_->segment_of(i), binder_->frame(i), std::exchange(dequantize, nullptr)});
  }
  logits_ = calls_.back().frame->scratch("logits");
  allocate_caches();
}

void Decoder::allocate_caches() {
  device::Device& device = *session_.plan.device;
  const model::Model& model = *session_.plan.model;
  const recipe::Recipe::Model& of = session_.plan.recipe().model;
  const int64_t token = of.kv_heads.value * of.head_dim.value * device::size_of(model.compute);
  const int64_t bytes = base::round_up(sizes_.slots * sizes_.capacity * token, 256);
  const int64_t scratch = kernels::attention_decode_workspace(of.head_dim.value, device::thread_count());
  const auto take = [&](int64_t size) { return caches_.emplace_back(device.allocate(size)); };
  try {
    places_ = static_cast<int32_t*>(take(2 * sizes_.rows * 4));
    if (device.id().kind == device::Kind::cpu) workspace_ = take(scratch);
    for (const Call& call : calls_) {
      call.frame->slice.slots = places_;
      call.frame->slice.positions = places_ + sizes_.rows;
      call.frame->slice.seq_len = 1;
      if (call.segment->name() != "attention") continue;
      call.frame->cache = {.keys = take(bytes), .slots = sizes_.slots, .capacity = sizes_.capacity};
      call.frame->cache.values = take(bytes);
      if (workspace_ == nullptr) continue;
      call.frame->launch.workspace = workspace_;
      call.frame->launch.workspace_bytes = scratch;
    }
  } catch (const device::OutOfMemory&) {
    for (void* cache : caches_) device.free(cache);
    const double gib = static_cast<double>(2 * bytes * model.layers) / (1 << 30);
    throw base::RunError(
        618,
        fmt::format("the keys and values of {} texts of {} tokens take {:.1f} GiB, which {} does not have; "
                    "generate fewer at once (--batch) or shorter ones (--tokens)",
                    sizes_.slots, sizes_.capacity, gib, device.id().to_string()));
  }
}

Decoder::~Decoder() {
  for (void* cache : caches_) session_.plan.device->free(cache);
}

bool Decoder::depends_on_length(int64_t tokens) const {
  return by_length_ && tokens > session_.plan.recipe().model.rope_original_context;
}

int64_t Decoder::read_again_behind() const {
  const recipe::Recipe::Model& model = session_.plan.recipe().model;
  const std::optional<model::Heads>& heads = model::find_family(model.family).heads;
  return by_length_ && heads && heads->reads_grown_text_again ? model.rope_original_context : 0;
}

void Decoder::begin_text(int64_t tokens) {
  if (by_length_) session_.parameters->fill_tables_for(tokens);
}

// Returns how many rows the pass computes.
int64_t Decoder::upload(std::span<const DecodeRow> rows) {
  LS_ASSERT(static_cast<int64_t>(rows.size()) <= sizes_.rows, "more rows than a pass has");
  int64_t count = static_cast<int64_t>(rows.size());
  if (pads_) {
    int64_t padded = 8;
    while (padded < count) padded *= 2;
    count = std::min(padded, sizes_.rows);
  }
  const auto at = static_cast<size_t>(sizes_.rows);
  words_.assign(3 * at, 0);
  for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
    const DecodeRow row =
        i < rows.size() ? rows[i] : DecodeRow{.slot = static_cast<int32_t>(sizes_.slots - 1)};
    LS_ASSERT(row.slot >= 0 && row.slot < sizes_.slots && row.position >= 0 && row.position < sizes_.capacity,
              "a row outside the cache");
    words_[i] = row.token;
    words_[at + i] = row.slot;
    words_[2 * at + i] = row.position;
  }
  device::Device& device = *session_.plan.device;
  const device::Stream stream = session_.executor->stream();
  device.copy(input_.data, words_.data(), count * 4, CopyKind::host_to_device, stream);
  device.copy(places_, words_.data() + at, 2 * sizes_.rows * 4, CopyKind::host_to_device, stream);
  return count;
}

void Decoder::pass(std::span<const DecodeRow> rows, const PassOptions& options, const Use& use) {
  if (rows.empty()) return;
  const int64_t count = upload(rows);
  ++passes_;
  for (const Call& call : calls_) {
    call.frame->slice.samples = count;
    call.frame->launch.rows_alone = options.alone;
    if (call.dequantize) call.dequantize();
    if (&call != &calls_.back()) call.segment->decode(*call.frame);
  }
  give_logits(options, static_cast<int64_t>(rows.size()), use);
}

// As many rows at a time as the head has memory for.
void Decoder::give_logits(const PassOptions& options, int64_t rows, const Use& use) {
  device::Device& device = *session_.plan.device;
  const device::Stream stream = session_.executor->stream();
  const Call& head = calls_.back();
  const int64_t width = vocab(), piece = std::max<int64_t>(1, logits_.numel() / width);
  const bool in_place = device.id().kind == device::Kind::cpu && logits_.dtype == DType::f32;
  for (int64_t first = 0; first < options.logits; first += piece) {
    const int64_t count = std::min(piece, options.logits - first);
    head.frame->wanted = {rows - options.logits + first, count};
    head.segment->decode(*head.frame);
    if (in_place) {
      use(first, count, logits_.as<float>());
      continue;
    }
    raw_.resize(static_cast<size_t>(count * width * device::size_of(logits_.dtype)));
    host_logits_.resize(static_cast<size_t>(count * width));
    device.copy(raw_.data(), logits_.data, static_cast<int64_t>(raw_.size()), CopyKind::device_to_host,
                stream);
    device.synchronize(stream);
    kernels::kernels_for(device::Kind::cpu)
        .cast({logits_.dtype, DType::f32, count * width, raw_.data(), host_logits_.data()}, {});
    use(first, count, host_logits_.data());
  }
  if (options.logits == 0) device.synchronize(stream);  // words_ may be written again
}

void Decoder::copy(int32_t from, int32_t to, int64_t tokens) {
  if (from == to) return;
  const recipe::Recipe::Model& of = session_.plan.recipe().model;
  const int64_t token = of.kv_heads.value * of.head_dim.value * device::size_of(session_.plan.model->compute);
  for (const Call& call : calls_) {
    for (void* cache : {call.frame->cache.keys, call.frame->cache.values}) {
      if (cache == nullptr) continue;
      char* base = static_cast<char*>(cache);
      session_.plan.device->copy(base + to * sizes_.capacity * token, base + from * sizes_.capacity * token,
                                 tokens * token, CopyKind::device_to_device, session_.executor->stream());
    }
  }
}

void for_chunks(std::span<const int32_t> text, int32_t slot, int64_t chunk,
                const std::function<void(std::span<const DecodeRow>, bool last)>& use) {
  std::vector<DecodeRow> rows;
  for (size_t i = 0; i < text.size(); ++i) {
    rows.push_back({text[i], slot, static_cast<int32_t>(i)});
    const bool last = i + 1 == text.size();
    if (!last && static_cast<int64_t>(rows.size()) < chunk) continue;
    use(rows, last);
    rows.clear();
  }
}

}  // namespace lockstep::run
