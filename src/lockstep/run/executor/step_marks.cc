#include "lockstep/run/executor/step_marks.h"

#include <algorithm>

#include "lockstep/kernels/table.h"

namespace lockstep::run {

StepMarks::StepMarks(device::Device& device, base::RingWriter& ring) : device_(device), ring_(ring) {}

StepMarks::~StepMarks() {
  for (auto& [lane, marked] : lanes_) {
    for (uint32_t* word : marked.words) device_.free_host(word);
  }
}

void StepMarks::add(size_t instruction, program::Lane lane, const base::RingStamp& stamp) {
  Marked& marked = lanes_[lane];
  for (uint32_t*& word : marked.words) {
    if (word != nullptr) continue;
    word = static_cast<uint32_t*>(device_.allocate_host(sizeof(uint32_t)));
    *word = 0;
  }
  places_[instruction] = {lane, marked.entries.size()};
  marked.entries.push_back({.stamp = stamp, .instruction = instruction});
}

void StepMarks::begin(size_t slot, int64_t step) {
  look();
  slot_ = slot;
  step_ = step;
  for (auto& [lane, marked] : lanes_) {
    *marked.words[slot] = 0;
    marked.finished[slot] = marked.started[slot] = 0;
    for (Entry& entry : marked.entries) entry.known[slot] = false;
  }
}

void StepMarks::enqueued(size_t instruction) {
  const auto place = places_.find(instruction);
  if (place == places_.end()) return;
  Entry& entry = lanes_[place->second.first].entries[place->second.second];
  base::RingStamp stamp = entry.stamp;
  stamp.step = step_;
  entry.tickets[slot_] = ring_.enqueue(stamp);
  entry.known[slot_] = true;
}

void StepMarks::all_enqueued() {
  for (const auto& [instruction, place] : places_) enqueued(instruction);
}

void StepMarks::mark(size_t instruction, device::Stream stream) {
  const auto place = places_.find(instruction);
  if (place == places_.end()) return;
  const Marked& marked = lanes_[place->second.first];
  const size_t done = place->second.second + 1;
  if (done % kEvery != 0 && done != marked.entries.size()) return;
  kernels::kernels_for(device_.id().kind)
      .mark({marked.words[slot_], static_cast<uint32_t>(done)}, {.stream = stream});
}

void StepMarks::look() {
  for (auto& [lane, marked] : lanes_) {
    for (const size_t slot : {1 - slot_, slot_}) look(marked, slot);  // the older step first
  }
}

void StepMarks::look(Marked& lane, size_t slot) {
  const auto done = std::min<size_t>(*static_cast<volatile uint32_t*>(lane.words[slot]), lane.entries.size());
  const auto start = [&](size_t k) {
    if (k < lane.started[slot] || k >= lane.entries.size() || !lane.entries[k].known[slot]) return;
    ring_.start(lane.entries[k].tickets[slot]);
    lane.started[slot] = k + 1;
  };
  for (; lane.finished[slot] < done; ++lane.finished[slot]) {
    start(lane.finished[slot]);
    if (lane.entries[lane.finished[slot]].known[slot])
      ring_.finish(lane.entries[lane.finished[slot]].tickets[slot]);
  }
  // The next one runs, unless the other slot's step, which is older, still does.
  const bool older_ends =
      slot != slot_ || lane.finished[1 - slot] == lane.entries.size() || !lane.entries[0].known[1 - slot];
  if (older_ends) start(done);
}

}  // namespace lockstep::run
