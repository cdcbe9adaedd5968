#include "lockstep/run/saving/memory_snapshot.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>

#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/base/hash.h"
#include "lockstep/base/round.h"

namespace lockstep::run {

namespace {

constexpr int64_t kPage = kSnapshotPage, kAlignment = 64;
constexpr double kShareOfTime = 0.01;  // that "auto" spends on copying
constexpr int64_t kMostEvery = 1000;
constexpr int64_t kSmall = int64_t{64} << 20;

int64_t available_memory() {
  std::ifstream file("/proc/meminfo");
  for (std::string word; file >> word;) {
    int64_t kib = 0;
    if (word == "MemAvailable:" && file >> kib) return kib * 1024;
  }
  return INT64_MAX;  // nobody says: try
}

}  // namespace

int64_t snapshot_interval(double copy_seconds, double step_seconds) {
  const double wanted = std::ceil(copy_seconds / std::max(1e-9, kShareOfTime * step_seconds));
  return static_cast<int64_t>(std::clamp<double>(wanted, 1, kMostEvery));
}

MemorySnapshots::MemorySnapshots(Session& session, int descriptor) : session_(session) {
  std::string shape;
  const auto& layout = session.plan.recipe().parallel;
  whole_ = layout.pipeline == 1 && layout.tensor == 1;
  const auto add = [&](const std::string& name, const Parameters::Held& held) {
    parts_.push_back({held.values, bytes_});
    shape += fmt::format("{} {} {} {};", name, held.sharded, held.first, held.values.bytes());
    bytes_ = base::round_up(bytes_ + held.values.bytes(), kAlignment);
    whole_ &= !held.sharded;
  };
  const Parameters& parameters = *session.parameters;
  add("step state", {.values = parameters.state()});
  for (const Parameters::Named& param : parameters.named()) {
    if (param.frozen && session.saves_adapter()) continue;  // each start reads them from the model's folder
    if (param.cut.cuts()) shape += fmt::format("part {} of {} of ", param.cut.part, param.cut.parts);
    add(param.name, param.master);
    for (const Parameters::State& state : param.state) add("moment", state.held);
  }
  for (const Parameters::Named& one : parameters.statistics()) add(one.name, one.master);
  shape_ = base::hash_text(shape);
  bytes_ = base::round_up(bytes_, kPage);
  const recipe::AutoInt& requested = session.plan.recipe().checkpoint.snapshot_every;
  if (!requested.is_auto) every_ = requested.value;

  // Where all ranks hold the same, one of a host is enough, unless it is so little that it does not matter.
  const bool small = bytes_ < kSmall;
  if (whole_ && !small && session.plan.seat.local_rank > 0) {
    ::close(descriptor);
    return;
  }
  map(descriptor, whole_ && !small ? 1 : std::max(1, session.plan.seat.local_world));
}

void MemorySnapshots::map(int descriptor, int sharers) {
  mapped_ = static_cast<size_t>(kPage + 2 * bytes_);
  struct stat now {};
  const bool large_enough = ::fstat(descriptor, &now) == 0 && now.st_size >= static_cast<int64_t>(mapped_);
  const int64_t there = available_memory() / sharers / 2;
  const bool too_much = !large_enough && static_cast<int64_t>(mapped_) > there;
  void* memory = MAP_FAILED;
  if (!too_much && (large_enough || ::ftruncate(descriptor, static_cast<off_t>(mapped_)) == 0))
    memory = ::mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  const int error = errno;
  ::close(descriptor);
  if (too_much) {
    throw base::IoError(
        560, fmt::format("snapshots need {:.1f} GiB of host memory per rank, but half of the free memory is "
                         "{:.1f} GiB: a lost rank costs the steps since the last checkpoint; set "
                         "checkpoint.snapshot_every=0 to silence this warning",
                         static_cast<double>(mapped_) / (1 << 30), static_cast<double>(there) / (1 << 30)));
  }
  if (memory == MAP_FAILED)
    throw base::IoError(560, fmt::format("cannot allocate memory for snapshots: {}", std::strerror(error)));
  header_ = static_cast<SnapshotHeader*>(memory);
  const bool ours = header_->magic == kSnapshotMagic && header_->shape == shape_ && header_->bytes == bytes_;
  if (ours) return;
  if (header_->magic == kSnapshotMagic) {
    for (const SnapshotHeader::Generation& one : header_->generations)
      of_other_layout_ = std::max(of_other_layout_, one.commit.load() - 1);
  }
  for (SnapshotHeader::Generation& one : header_->generations) one.commit.store(0);
  header_->replicated.store(0), header_->saved.store(0);
  header_->magic = kSnapshotMagic, header_->shape = shape_, header_->bytes = bytes_;
  header_->shares = whole_ ? 0 : 1;
}

void MemorySnapshots::saved(int64_t step) {
  if (header_ != nullptr && header_->saved.load() < step) header_->saved.store(step);
}

MemorySnapshots::~MemorySnapshots() {
  if (header_ != nullptr) ::munmap(header_, mapped_);
}

char* MemorySnapshots::generation(int which) const {
  return reinterpret_cast<char*>(header_) + kPage + which * bytes_;
}

std::optional<int64_t> MemorySnapshots::held(int which) const {
  if (header_ == nullptr) return std::nullopt;
  const SnapshotHeader::Generation& one = header_->generations[which];
  const int64_t commit = one.commit.load(std::memory_order_acquire);
  if (commit <= 0 || snapshot_checksum(generation(which), bytes_) != one.checksum) return std::nullopt;
  return commit - 1;
}

std::optional<int64_t> MemorySnapshots::restore(int64_t at_least) {
  const Ranks& ranks = *session_.ranks;
  const auto self = static_cast<size_t>(ranks.rank());
  // Who holds what: two numbers of each rank, steps + 1.
  std::vector<uint64_t> all(static_cast<size_t>(ranks.size()) * 2, 0);
  for (int which = 0; which < 2; ++which) {
    if (const auto step = held(which))
      all[self * 2 + static_cast<size_t>(which)] = static_cast<uint64_t>(*step) + 1;
  }
  all = ranks.sum(std::move(all));
  const auto holders = [&](uint64_t commit) {
    std::vector<int> found;
    for (int r = 0; r < ranks.size(); ++r) {
      const auto at = static_cast<size_t>(r) * 2;
      if (all[at] == commit || all[at + 1] == commit) found.push_back(r);
    }
    return found;
  };
  const double sharers = ranks.sum(std::vector<double>{whole_ ? 0.0 : 1.0})[0];
  const size_t enough = sharers > 0 ? static_cast<size_t>(ranks.size()) : 1;
  const auto newest_of = [&](size_t count) {  // the first so many
    uint64_t newest = static_cast<uint64_t>(at_least) + 1;
    for (size_t k = 0; k < count; ++k) {
      if (all[k] > newest && holders(all[k]).size() >= enough) newest = all[k];
    }
    return newest > static_cast<uint64_t>(at_least) + 1 ? newest : 0;
  };
  // The first rank writes a step's line before its snapshot; another rank's may be a step ahead of the lines.
  uint64_t newest = newest_of(2);
  if (newest == 0) newest = newest_of(all.size());
  if (newest == 0) {
    forget_newer_than(at_least);
    return std::nullopt;
  }
  forget_newer_than(static_cast<int64_t>(newest) - 1);
  const int which = all[self * 2] == newest ? 0 : all[self * 2 + 1] == newest ? 1 : -1;
  const std::vector<int> having = holders(newest);
  if (which >= 0) load(which);
  if (static_cast<int>(having.size()) < ranks.size()) share(having[0], which);
  session_.parameters->refresh_compute();
  return static_cast<int64_t>(newest) - 1;
}

// Steps that are about to be done again: without run.exact they may come out with other bits, and ranks must
// not mix the two.
void MemorySnapshots::forget_newer_than(int64_t step) {
  if (header_ == nullptr) return;
  for (SnapshotHeader::Generation& one : header_->generations) {
    if (one.commit.load() > step + 1) one.commit.store(0);
  }
  if (header_->replicated.load() > step + 1) header_->replicated.store(0);
}

void MemorySnapshots::load(int which) {
  for (const Part& part : parts_) {
    if (part.device.bytes() > 0) session_.parameters->write(part.device, generation(which) + part.offset);
  }
}

// One that has it gives it to all; who has it already gets the same bytes again.
void MemorySnapshots::share(int root, int which) {
  const bool gives = session_.ranks->rank() == root;
  std::vector<char> host;
  for (const Part& part : parts_) {
    host.resize(static_cast<size_t>(part.device.bytes()));
    if (gives) std::memcpy(host.data(), generation(which) + part.offset, host.size());
    session_.ranks->host().broadcast({host.data(), device::DType::u8, {part.device.bytes()}}, root);
    if (!gives) session_.parameters->write(part.device, host.data());
  }
}

bool MemorySnapshots::due(int64_t step) {
  const recipe::AutoInt& requested = session_.plan.recipe().checkpoint.snapshot_every;
  if (!requested.is_auto) return requested.value > 0 && step % requested.value == 0;
  if (every_ == 0) return ++seen_ >= 2;  // the first step is slower than others
  return (step - decided_at_) % every_ == 0;
}

void MemorySnapshots::take(int64_t step, double seconds_of_a_step) {
  const int64_t began = base::monotonic_ns();
  if (header_ != nullptr && !copy(step)) return;
  if (every_ != 0) return;
  decided_at_ = step;
  decide_every(static_cast<double>(base::monotonic_ns() - began) / 1e9, seconds_of_a_step);
}

bool MemorySnapshots::copy(int64_t step) {
  const int64_t commits[] = {header_->generations[0].commit.load(), header_->generations[1].commit.load()};
  const int which = commits[0] <= commits[1] ? 0 : 1;
  if (replicates() && still_under_way(std::max(commits[0], commits[1]))) return false;
  SnapshotHeader::Generation& one = header_->generations[which];
  one.commit.store(0, std::memory_order_seq_cst);
  for (const Part& part : parts_) {
    if (part.device.bytes() > 0) session_.parameters->read(part.device, generation(which) + part.offset);
  }
  one.checksum = snapshot_checksum(generation(which), bytes_);
  one.commit.store(step + 1, std::memory_order_seq_cst);
  return true;
}

bool MemorySnapshots::replicates() const {
  return !whole_ && session_.plan.recipe().checkpoint.replicas > 0 && session_.plan.seat.nodes > 1;
}

// The other node must have the newest snapshot of every rank before the one before it is given up: else a
// lost node might leave none that all ranks have. Either all ranks take this one or none does.
bool MemorySnapshots::still_under_way(int64_t newest) const {
  const bool mine = newest > 0 && header_->replicated.load() < newest;
  return session_.ranks->sum(std::vector<double>{mine ? 1.0 : 0.0})[0] > 0;
}

// Every rank must come to the same number: it is made from sums over all of them.
void MemorySnapshots::decide_every(double seconds, double seconds_of_a_step) {
  const std::vector<double> sums = session_.ranks->sum(std::vector<double>{seconds, seconds_of_a_step});
  every_ = snapshot_interval(sums[0], sums[1]);
}

}  // namespace lockstep::run
