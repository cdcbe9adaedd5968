#include "lockstep/data/loader.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <numeric>
#include <thread>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/threads.h"
#include "lockstep/data/announced.h"
#include "lockstep/kernels/loss/loss.h"

namespace lockstep::data {
namespace {

using kernels::kIgnoredLabel;

// Room for `samples` samples, and where each of them lies.
struct BatchWriter {
  Batch batch;
  const Dataset& dataset;
  const References* references;
  size_t input_count, label_count;  // words of one sample

  BatchWriter(const Dataset& source, const References* of_pairs, int64_t step, int64_t samples,
              int64_t seq_len)
      : dataset(source),
        references(of_pairs),
        input_count(static_cast<size_t>(source.inputs_per_sample(seq_len))),
        label_count(static_cast<size_t>(source.labels_per_sample(seq_len))) {
    batch.step = step;
    batch.inputs.resize(static_cast<size_t>(samples) * input_count, 0);
    batch.labels.resize(static_cast<size_t>(samples) * label_count, kIgnoredLabel);
    if (source.has_documents()) batch.documents.resize(batch.inputs.size(), 0);
    if (source.has_pairs()) batch.references.resize(static_cast<size_t>(samples), 0);
  }

  void read(Split split, int64_t index, int64_t place) {
    const auto at = static_cast<size_t>(place);
    const std::span labels = std::span(batch.labels).subspan(at * label_count, label_count);
    dataset.read(split, index, std::span(batch.inputs).subspan(at * input_count, input_count), labels);
    if (dataset.has_documents())
      dataset.read_documents(split, index, std::span(batch.documents).subspan(at * input_count, input_count));
    if (dataset.has_pairs()) return add_half_of_pair(split, index, at);
    batch.valid_labels +=
        static_cast<int64_t>(label_count) - std::count(labels.begin(), labels.end(), kIgnoredLabel);
  }

  void add_half_of_pair(Split split, int64_t index, size_t at) {
    batch.valid_labels += index % 2;
    if (references != nullptr && !references->of(split).empty())
      batch.references[at] = references->of(split)[static_cast<size_t>(index)];
  }
};

void check(const LoaderOptions& options) {
  LS_ASSERT(options.global > 0 && options.slices > 0 && options.global % options.slices == 0);
  LS_ASSERT(options.seq_len > 0 && options.first_step >= 0);
  for (const int64_t slice : options.own_slices) LS_ASSERT(slice >= 0 && slice < options.slices);
}

std::vector<int64_t> slices_to_read(const LoaderOptions& options) {
  if (!options.own_slices.empty()) return options.own_slices;
  std::vector<int64_t> all(static_cast<size_t>(options.slices));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

// Returns early, with a batch nobody may use, once `stop` is set.
Batch read_training_batch(const Dataset& dataset, const LoaderOptions& options, int64_t step,
                          const std::atomic<bool>& stop) {
  const int64_t of_slice = options.global / options.slices;
  const std::vector<int64_t> slices = slices_to_read(options);
  BatchWriter writer(dataset, options.references, step, static_cast<int64_t>(slices.size()) * of_slice,
                     options.seq_len);
  std::vector<int64_t> samples;
  for (const int64_t slice : slices) {
    for (int64_t j = slice * of_slice; j < (slice + 1) * of_slice; ++j)
      samples.push_back(dataset.sample_at(options.seed, step * options.global + j));
  }
  if (const auto* told = dynamic_cast<const Announced*>(&dataset)) told->announce(Split::train, samples);
  for (size_t place = 0; place < samples.size() && !stop; ++place)
    writer.read(Split::train, samples[place], static_cast<int64_t>(place));
  return std::move(writer.batch);
}

}  // namespace

// Workers claim steps in order and read them in any; next() hands them out in order. A step may be claimed
// while it is less than `prefetch` ahead of the one that next() will hand out, which bounds memory.
struct Loader::State {
  const Dataset& dataset;
  const LoaderOptions options;

  struct Slot {
    std::shared_ptr<const Batch> batch;
    std::exception_ptr error;
  };
  std::mutex mutex;  // guards what follows
  std::condition_variable wanted, ready;
  std::map<int64_t, Slot> finished;  // by step
  int64_t next_claimed, next_handed;
  double waited_ms = 0;  // of the caller's thread alone

  std::atomic<bool> stop{false};
  std::vector<std::thread> workers;

  State(const Dataset& source, LoaderOptions given)
      : dataset(source),
        options(std::move(given)),
        next_claimed(options.first_step),
        next_handed(options.first_step) {}

  ~State() {
    {
      const std::lock_guard lock(mutex);
      stop = true;
    }
    wanted.notify_all();
    for (std::thread& worker : workers) worker.join();
  }

  void start() {
    const int64_t ahead = std::max<int64_t>(1, options.prefetch);
    const int64_t threads =
        std::clamp<int64_t>(options.workers, 1, ahead);  // more would have nothing to claim
    workers.emplace_back([this, ahead] { work(ahead); });
    while (static_cast<int64_t>(workers.size()) < threads) {
      if (!base::add_helper(workers, [this, ahead] { work(ahead); })) break;
    }
  }

  void work(int64_t ahead) {
    std::unique_lock lock(mutex);
    while (true) {
      wanted.wait(lock, [&] { return stop || next_claimed < next_handed + ahead; });
      if (stop) return;
      const int64_t step = next_claimed++;
      lock.unlock();
      Slot slot = read(step);
      lock.lock();
      finished.emplace(step, std::move(slot));
      ready.notify_one();
    }
  }

  Slot read(int64_t step) const {
    try {
      return {std::make_shared<const Batch>(read_training_batch(dataset, options, step, stop)), nullptr};
    } catch (...) {
      return {nullptr, std::current_exception()};
    }
  }
};

Loader::Loader(const Dataset& dataset, LoaderOptions options) {
  check(options);
  LS_ASSERT(dataset.samples(Split::train) > 0);
  state_ = std::make_unique<State>(dataset, std::move(options));
  state_->start();
}

Loader::~Loader() = default;

std::shared_ptr<const Batch> Loader::next() {
  const auto before = std::chrono::steady_clock::now();
  std::unique_lock lock(state_->mutex);
  const auto found = [&] { return state_->finished.find(state_->next_handed); };
  state_->ready.wait(lock, [&] { return found() != state_->finished.end(); });
  state_->waited_ms =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - before).count();
  if (found()->second.error) std::rethrow_exception(found()->second.error);
  std::shared_ptr<const Batch> batch = std::move(found()->second.batch);
  state_->finished.erase(found());
  ++state_->next_handed;
  lock.unlock();
  state_->wanted.notify_one();
  return batch;
}

double Loader::waited_ms() const { return state_->waited_ms; }

Batch read_batch(const Dataset& dataset, const LoaderOptions& options, int64_t step) {
  check(options);
  return read_training_batch(dataset, options, step, false);
}

Batch read_in_order(const Dataset& dataset, const InOrder& which, const References* references) {
  LS_ASSERT(which.batch >= 0 && which.count > 0 && which.seq_len > 0);
  BatchWriter writer(dataset, references, which.batch, which.count, which.seq_len);
  const int64_t first = which.batch * which.count;
  const int64_t last = std::min(first + which.count, dataset.samples(which.split));
  if (const auto* told = dynamic_cast<const Announced*>(&dataset); told != nullptr && first < last) {
    std::vector<int64_t> samples(static_cast<size_t>(last - first));
    std::iota(samples.begin(), samples.end(), first);
    told->announce(which.split, samples);
  }
  for (int64_t index = first; index < last; ++index) writer.read(which.split, index, index - first);
  return std::move(writer.batch);
}

Batch read_eval_batch(const Dataset& dataset, int64_t batch, int64_t count, int64_t seq_len,
                      const References* references) {
  return read_in_order(dataset, {.batch = batch, .count = count, .seq_len = seq_len}, references);
}

}  // namespace lockstep::data
