// Binding: an instruction becomes one call with its tensors fixed. The executor's other half.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "lockstep/run/executor/executor.h"

namespace lockstep::run {

// Two pinned copies of a step's batch, used in turn, so that the host may fill one while the device still
// copies from the other.
class Staging {
 public:
  void allocate(device::Device& device, const program::Program& program);
  void free(device::Device& device);
  void fill(device::Device& device, const HostBatch& batch, const kernels::StepInputs& inputs);
  void clear();                                                // zeros, which are tokens of every vocabulary
  void in_use(device::Device& device, device::Stream stream);  // until what is enqueued so far has run
  size_t slot() const { return current_; }                     // which of the two the current step uses
  const kernels::StepInputs* inputs() const { return &slots_[current_].header[0]; }
  const kernels::StepInputs* now() const { return &now_; }  // the same, at one place for all steps
  const int32_t* words(std::string_view field) const {
    const Slot& slot = slots_[current_];
    return field == "labels"            ? slot.labels
           : field == "documents"       ? slot.documents
           : field == "offsets"         ? slot.offsets
           : field == "whole_documents" ? slot.whole_documents
           : field == "references"      ? slot.references
                                        : slot.inputs;
  }

 private:
  struct Slot {
    kernels::StepInputs* header = nullptr;
    int32_t* inputs = nullptr;
    int32_t* labels = nullptr;
    int32_t* documents = nullptr;
    int32_t* offsets = nullptr;          // of each slice, made of documents
    int32_t* whole_documents = nullptr;  // of all context ranks' tokens, where attention sees them all
    int32_t* references = nullptr;       // doubles, two words each
    device::Event done = nullptr;
    bool busy = false;
  };
  enum class Whose { own, all };  // of the context ranks
  void pick(std::span<const int32_t> from, int32_t* to, Whose whose) const;
  void pick_documents(std::span<const int32_t> begins, const Slot& slot) const;
  void find_offsets(const int32_t* begins, int32_t* offsets) const;
  Slot slots_[2];
  size_t current_ = 0;
  int64_t input_words_ = 0, label_words_ = 0, document_words_ = 0, offset_words_ = 0, reference_words_ = 0;
  int64_t whole_document_words_ = 0;
  kernels::StepInputs now_;
  int64_t samples_ = 0, rows_ = 0;  // runs of tokens: of a slice, of all
  model::Parts parts_;
};

struct BindContext {
  const model::Model& model;
  const program::Program& program;
  const Memory& memory;
  device::Device& device;
  std::map<program::Lane, device::Stream> streams;  // of the lanes
  Staging& staging;
  Executor::Options options;
};

class Binder {
 public:
  explicit Binder(BindContext context);
  std::function<void()> bind(const program::Instruction& instruction);
  // What a segment is handed for this instruction. `generate` moves its position from token to token.
  std::shared_ptr<model::Frame> frame(const program::Instruction& instruction);
  const model::Segment& segment_of(const program::Instruction& instruction) const;

 private:
  using Call = std::function<void()>;
  Call begin_step(const program::Instruction& i);
  Call load(const program::Instruction& i);
  Call segment(const program::Instruction& i, const program::RunSegment& run);
  Call dequantize(const program::Instruction& i);
  std::function<char*(int)> own_values(const program::Instruction& i) const;
  Call add_edges(const program::Instruction& i);
  Call join_strands(const program::Instruction& i);
  Call add_tied(const program::Instruction& i, const program::AddTied& tied);
  kernels::Add tied(const program::Instruction& i, int param, const device::Tensor& into,
                    const device::Tensor& from) const;
  Call fold_statistics(const program::Instruction& i);
  Call norm(const program::Instruction& i, const program::Norm& norm);
  Call update(const program::Instruction& i, const program::Update& what);
  Call update_chunks(const program::Instruction& i, const program::Update& what);
  Call update_whole(const program::Instruction& i, const program::Update& what);
  void fill_chunks(size_t block, const std::vector<kernels::Chunk>& all);
  // This rank's shard of a flat buffer of a block; all of it where nothing is sharded.
  char* own(int buffer, int block) const;
  device::Tensor used(const std::vector<program::Use>& uses, program::Role role, int block = -1) const;
  device::Tensor parameter(const program::Instruction& i, const program::Use& use) const;

  // What this rank holds of a region of a block.
  struct OwnPart {
    int64_t first_chunk = 0, chunks = 0;  // in its table of chunks
    int64_t offset = 0;                   // elements from its first of the block
  };

  BindContext c_;
  const kernels::Kernels& kernels_;
  device::Stream stream_;  // of the compute lane
  kernels::Launch launch_;
  std::vector<model::BlockLayout> layouts_;
  std::vector<std::vector<OwnPart>> parts_;                   // [block][region]
  std::vector<int64_t> first_slot_;                           // of a block, among all
  int64_t slots_ = 0;                                         // of all blocks
  std::map<std::vector<int>, std::shared_ptr<void>> graphs_;  // {block, segment, slice}: AutogradBlock's tape
};

}  // namespace lockstep::run
