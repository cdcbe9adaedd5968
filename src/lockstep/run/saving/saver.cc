#include "lockstep/run/saving/saver.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>

#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/device/thread_pool.h"
#include "lockstep/model/families/huggingface.h"
#include "lockstep/run/session/adapter.h"

namespace lockstep::run {

namespace {

constexpr auto kGrace = std::chrono::seconds(60);  // for a save in progress when the run ends badly
constexpr int64_t kCopyGrain = int64_t{1} << 20;   // a thread's turn when copying between host memories
constexpr int64_t kPage = 4096;

checkpoint::Member member_of(const Ranks& ranks) {
  if (ranks.alone()) return {};
  return {ranks.world()->store().clone(), ranks.rank(), ranks.size()};
}

// Collective where only what is trained is saved: the hash of the rest is made once.
checkpoint::SaveOptions options_of(const Session& session, const std::string& run_folder) {
  const recipe::Recipe& recipe = session.plan.recipe();
  checkpoint::SaveOptions options{
      .run_folder = run_folder,
      .retention = {static_cast<int>(recipe.checkpoint.keep), recipe.checkpoint.keep_every}};
  if (!session.saves_adapter()) return options;
  options.whole_hash = [&parameters = *session.parameters, sums = session.parameters->hash_sums()](
                           const checkpoint::HashSums& of, const std::vector<checkpoint::Whole>& tensors) {
    return parameters.hash_with(sums, of, tensors);
  };
  return options;
}

// What a checkpoint holds: everything, or beside a model with a folder of its own what is trained.
std::vector<Parameters::Saved> to_save(const Session& session) {
  std::vector<Parameters::Saved> held = session.parameters->saved();
  if (session.saves_adapter()) std::erase_if(held, [](const Parameters::Saved& one) { return one.frozen; });
  return held;
}

std::string layout_words(const Session& session) {
  const program::DataRanks& ranks = session.plan.layout.ranks;
  std::string words = fmt::format("{} rank{}", session.ranks->size(), session.ranks->size() == 1 ? "" : "s");
  if (ranks.sharded()) words += fmt::format(", zero {} over {}", ranks.zero, ranks.shard);
  return words;
}

// Pages that are there before the first save: a copy into new ones takes twice as long.
std::byte* touched_pages(int64_t bytes) {
  void* memory =
      ::mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    throw base::IoError(
        412,
        fmt::format(
            "cannot allocate {} bytes of host memory for a checkpoint's copy; free memory, or use more ranks",
            bytes));
  }
  ::madvise(memory, static_cast<size_t>(bytes), MADV_HUGEPAGE);
  auto* const pages = static_cast<std::byte*>(memory);
  for (int64_t at = 0; at < bytes; at += kPage) pages[at] = std::byte{0};
  return pages;
}

}  // namespace

// What stays the same from save to save: rank 0 writes it.
checkpoint::Facts Saver::about(const Session& session) {
  checkpoint::Facts facts;
  if (!session.ranks->first()) return facts;
  // The recipe's [model] says nothing of a model that a program has brought.
  if (!session.plan.own_model) facts.config_json = model::huggingface_config(session.plan.recipe());
  facts.recipe_toml = recipe::write_toml(session.plan.recipe());
  facts.layout = layout_words(session);
  if (!session.saves_adapter()) return facts;
  facts.base = base_of(session);
  facts.adapter_json = adapter_config_text(adapter_config(session.plan, facts.base->folder));
  return facts;
}

// Of what several ranks hold alike, each writes a share. Sources follow the pieces.
std::vector<checkpoint::Piece> Saver::pieces_of(const std::vector<Parameters::Saved>& held,
                                                std::vector<Source>& sources) {
  std::map<std::pair<bool, bool>, std::vector<const Parameters::Saved*>> alike;  // copies on the same ranks
  for (const Parameters::Saved& one : held) alike[{one.sharded, one.cut}].push_back(&one);
  std::vector<checkpoint::Piece> pieces;
  for (const auto& [sort, list] : alike) {
    std::vector<checkpoint::Piece> all;
    for (const Parameters::Saved* one : list) all.push_back(one->piece);
    for (checkpoint::Assigned& mine : checkpoint::share_of(all, list[0]->copy, list[0]->copies)) {
      const device::Tensor& values = list[mine.of]->values;
      const kernels::Quantized format = list[mine.of]->format;
      const int64_t at = format != kernels::Quantized::none ? kernels::quantized_bytes(format, mine.begin)
                                                            : mine.begin * device::size_of(values.dtype);
      sources.push_back({values.as<const char>() + at, mine.piece.bytes(), format});
      pieces.push_back(std::move(mine.piece));
    }
  }
  return pieces;
}

// Of all that is held, whoever writes it.
std::vector<checkpoint::Whole> Saver::tensors_of(const std::vector<Parameters::Saved>& held) {
  std::vector<checkpoint::Whole> tensors;
  for (const Parameters::Saved& one : held) tensors.push_back(one.piece.tensor);
  return tensors;
}

Saver::Saver(Session& session, const std::string& run_folder)
    : Saver(session, run_folder, to_save(session)) {}

Saver::Saver(Session& session, const std::string& run_folder, const std::vector<Parameters::Saved>& held)
    : session_(session),
      device_(*session.plan.device),
      async_(session.plan.recipe().checkpoint.async),
      team_(member_of(*session.ranks), pieces_of(held, sources_), options_of(session, run_folder),
            tensors_of(held)),
      stream_(device_.create_stream()),
      preparing_(session.plan.recipe().checkpoint.every > 0),
      about_(about(session)),
      thread_([this] { work(); }) {}

Saver::~Saver() {
  {
    std::unique_lock lock(mutex_);
    ending_ = true;
    changed_.notify_all();
    if (!changed_.wait_for(lock, kGrace, [&] { return jobs_.empty() && !working_; })) team_.give_up();
  }
  thread_.join();
  for (Buffer& buffer : buffers_) release(buffer);
  device_.destroy_stream(stream_);
}

void Saver::allocate(Buffer& buffer) {
  if (buffer.memory != nullptr) return;
  const int64_t bytes = std::max<int64_t>(team_.memory_bytes(), kPage);
  if (device_.id().kind != device::Kind::cpu) {
    try {
      buffer.memory = static_cast<std::byte*>(device_.allocate_host(bytes));
      buffer.pinned = true;
      return;
    } catch (const base::IoError&) {  // cannot be pinned: the copy is slower
    }
  }
  buffer.memory = touched_pages(bytes);
}

void Saver::release(Buffer& buffer) {
  if (buffer.memory == nullptr) return;
  if (buffer.pinned) {
    device_.free_host(buffer.memory);
  } else {
    ::munmap(buffer.memory, static_cast<size_t>(std::max<int64_t>(team_.memory_bytes(), kPage)));
  }
}

// The first when it is free, so that the second is made only where saves overlap.
Saver::Buffer& Saver::free_buffer() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !preparing_ && (!buffers_[0].busy || !buffers_[1].busy || bug_); });
  if (bug_) std::rethrow_exception(bug_);
  Buffer& buffer = buffers_[0].busy ? buffers_[1] : buffers_[0];
  buffer.busy = true;
  return buffer;
}

void Saver::copy_into(const Buffer& buffer) {
  for (size_t k = 0; k < sources_.size(); ++k) {
    const Source& source = sources_[k];
    if (source.format == kernels::Quantized::none) continue;
    session_.parameters->read_dequantized(source.format, source.from, source.bytes / 4,
                                          reinterpret_cast<float*>(buffer.memory + team_.offsets()[k]));
  }
  if (device_.id().kind != device::Kind::cpu) {
    for (size_t k = 0; k < sources_.size(); ++k) {
      if (sources_[k].format != kernels::Quantized::none) continue;
      device_.copy(buffer.memory + team_.offsets()[k], sources_[k].from, sources_[k].bytes,
                   device::CopyKind::device_to_host, stream_);
    }
    device_.synchronize(stream_);
    return;
  }
  struct Turn {
    std::byte* to;
    const char* from;
    size_t bytes;
  };
  std::vector<Turn> turns;
  for (size_t k = 0; k < sources_.size(); ++k) {
    const bool done = sources_[k].format != kernels::Quantized::none;
    for (int64_t at = 0; !done && at < sources_[k].bytes; at += kCopyGrain) {
      turns.push_back({buffer.memory + team_.offsets()[k] + at, sources_[k].from + at,
                       static_cast<size_t>(std::min(kCopyGrain, sources_[k].bytes - at))});
    }
  }
  device::run_items(static_cast<int64_t>(turns.size()), device::thread_count(), [&](int64_t k, int) {
    const Turn& turn = turns[static_cast<size_t>(k)];
    std::memcpy(turn.to, turn.from, turn.bytes);
  });
}

checkpoint::Facts Saver::facts_of(int64_t step) const {
  checkpoint::Facts facts = about_;
  facts.step = step;
  facts.state.resize(sizeof(kernels::StepState));
  session_.parameters->read(session_.parameters->state(), facts.state.data());
  return facts;
}

void Saver::save(int64_t step) {
  const int64_t began = base::monotonic_ns();
  Buffer& buffer = free_buffer();
  allocate(buffer);
  copy_into(buffer);
  checkpoint::Facts facts = facts_of(step);
  const double pause_ms = static_cast<double>(base::monotonic_ns() - began) / 1e6;
  std::unique_lock lock(mutex_);
  jobs_.push_back({std::move(facts), &buffer, pause_ms});
  changed_.notify_all();
  if (!async_) wait_until_idle(lock);
}

void Saver::wait_until_idle(std::unique_lock<std::mutex>& lock) {
  changed_.wait(lock, [&] { return (jobs_.empty() && !working_) || bug_; });
  if (bug_) std::rethrow_exception(bug_);
}

std::optional<Saved> Saver::poll() {
  const std::lock_guard lock(mutex_);
  if (bug_) std::rethrow_exception(bug_);
  if (ended_.empty()) return std::nullopt;
  Saved saved = std::move(ended_.front());
  ended_.pop_front();
  return saved;
}

void Saver::finish() {
  std::unique_lock lock(mutex_);
  wait_until_idle(lock);
  if (newest_ && newest_->error != 0) {
    throw base::IoError(815, fmt::format("the checkpoint of step {} was not saved: {}. Run the same command "
                                         "again: it resumes from the previous one, if there is one",
                                         newest_->step, newest_->why));
  }
}

// Memory takes longer to get than to fill: the first is fetched before it is needed.
void Saver::prepare() {
  std::exception_ptr bug;
  try {
    if (preparing_) allocate(buffers_[0]);
  } catch (...) {
    bug = std::current_exception();
  }
  const std::lock_guard lock(mutex_);
  preparing_ = false;
  bug_ = bug;
  changed_.notify_all();
}

void Saver::work() {
  device::work_alone();  // the cores are the training's
  prepare();
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return ending_ || !jobs_.empty(); });
    if (jobs_.empty()) return;
    const Job job = std::move(jobs_.front());
    jobs_.pop_front();
    working_ = true;
    lock.unlock();
    checkpoint::Outcome outcome;
    std::exception_ptr bug;
    try {
      outcome = team_.save(job.facts, {job.buffer->memory, static_cast<size_t>(team_.memory_bytes())});
    } catch (...) {
      bug = std::current_exception();
    }
    lock.lock();
    working_ = false;
    job.buffer->busy = false;
    if (bug) bug_ = bug;
    newest_ = outcome;
    ended_.push_back({std::move(outcome), job.pause_ms});
    changed_.notify_all();
  }
}

std::string save_checkpoint(Session& session, const std::string& run_folder, int64_t step) {
  Saver saver(session, run_folder);
  saver.save(step);
  saver.finish();
  return saver.poll()->outcome.folder;
}

}  // namespace lockstep::run
