// What a segment is handed when one of its parts runs: its tensors by role and name, and the slice.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/device/device.h"
#include "lockstep/device/tensor.h"
#include "lockstep/kernels/table.h"

namespace lockstep::model {

// The same with so many rows.
device::Shape with_rows(const device::Shape& shape, int64_t rows);

// Rows whose samples stand at the same positions.
struct PositionedRows {
  int64_t first_row = 0, samples = 1, position = 0;
  int64_t length = 1;  // of each sample
};

// A slice as this rank sees it: `samples` runs of `seq_len` tokens. Context ranks hold parts of every sample:
// one run each where they exchange heads; in a ring two, one from the front and one from the back of the
// sequence, so that all have as much to attend to: first all front runs, then all back runs.
struct SliceContext {
  uint32_t slice = 0;  // in the global batch: keys the randomness
  int64_t samples = 1, seq_len = 1;
  // `generate`: the text (slot of the cache) and the position of each row, on the device; null: rows follow
  // each other.
  const int32_t* slots = nullptr;
  const int32_t* positions = nullptr;
  int context = 1, context_rank = 0;
  bool ring = false;
  bool training = true;
  int64_t tokens() const { return samples * seq_len; }
  int64_t whole_length() const { return seq_len * context * (ring ? 2 : 1); }
  std::vector<PositionedRows> rows() const;
};

// Keys and values of one attention segment, for `generate`: [slots, capacity, width].
struct DecodeCache {
  void* keys = nullptr;
  void* values = nullptr;
  int64_t slots = 0, capacity = 0;
};

// `generate`: the rows whose logits the head computes, into the first rows of its scratch.
struct WantedLogits {
  int64_t first = 0, rows = 0;
};

// What does not depend on names.
struct FrameContext {
  const kernels::Kernels* kernels = nullptr;
  kernels::Launch launch;
  SliceContext slice;
  bool accumulate = false;     // add to weight gradients: not the first slice of its strand
  int64_t slices = 1;          // of the step: how many fold_statistics finds
  int part = -1;               // of a segment that runs in parts (Ring): which of them
  bool last_part = true;       // of those; true where there is only one
  bool input_gradient = true;  // of a loss: false where nothing below it is trained, and nobody reads din
  device::Device* device = nullptr;
  const kernels::StepInputs* inputs = nullptr;   // where the device reads them
  const kernels::StepInputs* on_host = nullptr;  // the same, of the step that is being enqueued
  const kernels::StepState* state = nullptr;
  double* loss = nullptr;  // loss segments: where the slice's sum goes
  double* sequences =
      nullptr;  // of pairs (Model::pairs): where the log-probabilities of the slice's samples go
  DecodeCache cache;
  WantedLogits wanted;
  std::shared_ptr<void>* graph = nullptr;  // AutogradBlock: kept from forward to backward_weight
};

class Frame : public FrameContext {
 public:
  device::Tensor in(std::string_view name) const { return get("in.", name); }
  device::Tensor out(std::string_view name) const { return get("out.", name); }
  device::Tensor saved(std::string_view name) const { return get("save.", name); }
  device::Tensor prepared(std::string_view name) const { return get("prep.", name); }
  device::Tensor scratch(std::string_view name) const { return get("scratch.", name); }
  device::Tensor left(std::string_view name) const { return get("left.", name); }
  // backward_input: where to put this value of forward again; empty when it was kept.
  device::Tensor again(std::string_view name) const { return find("again.", name); }
  device::Tensor din(std::string_view name) const { return get("din.", name); }
  device::Tensor dout(std::string_view name) const { return get("dout.", name); }
  device::Tensor ring(std::string_view name) const { return get("ring.", name); }
  device::Tensor ring_gradient(std::string_view name) const { return get("ringgrad.", name); }
  device::Tensor across(std::string_view name) const { return get("across.", name); }
  device::Tensor batch(std::string_view name) const { return get("batch.", name); }
  // Those of a segment that reads "documents", and "offsets"; null where it does not.
  kernels::Documents documents() const;
  const int32_t* document_begins(
      const PositionedRows& rows) const;  // the first of Documents, from these rows on
  device::Tensor weight(std::string_view key) const { return get("weight.", key); }
  device::Tensor grad(std::string_view key) const { return get("grad.", key); }
  bool sums(std::string_view key) const {  // this part of the segment leaves a gradient of this parameter
    return trains(key) && look("grad.", key).has_value();
  }
  bool trains(std::string_view key) const;  // this parameter; false: it is frozen and has no gradient
  void freeze(std::string key) { frozen_.push_back(std::move(key)); }
  device::Tensor buffer(std::string_view key) const { return get("buffer.", key); }
  // What a slice's forward makes of the statistic `key`; to fold_statistics, of each slice.
  device::Tensor statistic(std::string_view key) const { return get("stat.", key); }
  device::Tensor statistic(std::string_view key, int64_t of_slice) const;

  void bind(std::string role_and_name, device::Tensor tensor);  // "in.hidden"

  // What one of several segments that run as one sees: values of its own under their names and `suffix`, all
  // others as they are. What is bound to it comes before both. It must not outlive this frame.
  Frame within(std::string suffix) const;
  // What a segment sees that works on the k-th of so many equal pieces of this one's tokens: the rows of that
  // piece of everything that has rows, weights and tables as they are. The same holds of its lifetime.
  Frame piece(int k, int count) const;

 private:
  device::Tensor get(std::string_view role, std::string_view name) const;
  device::Tensor find(std::string_view role, std::string_view name) const;  // empty when there is none
  std::optional<device::Tensor> look(std::string_view role, std::string_view name) const;
  std::vector<std::pair<std::string, device::Tensor>> values_;
  std::vector<std::string> frozen_;
  const Frame* whole_ = nullptr;
  std::string suffix_;
  int piece_ = 0, pieces_ = 1;  // of the whole frame's rows
};

}  // namespace lockstep::model
