// A model's forward pass over new tokens of several texts at once, with their keys and values cached.
//
// A pass takes rows: each is one token of one text (a slot of the cache) at one position. A prompt is many
// rows of one slot, a step of generation one row of each text, an evaluation any mixture; texts of different
// lengths need no padding.
//
//     Decoder decoder(session, {.slots = 2, .capacity = 512});
//     decoder.pass(prompt_rows, {.logits = 1, .alone = false}, use);     // logits of the last row
//     decoder.pass({{token, 0, 17}, {other, 1, 5}}, {.logits = 2}, use);
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "lockstep/run/executor/bind.h"
#include "lockstep/run/session/session.h"

namespace lockstep::run {

struct DecodeRow {
  int32_t token = 0, slot = 0, position = 0;
};

struct DecodeSizes {
  int64_t slots = 1;     // texts that are cached at once
  int64_t capacity = 0;  // tokens of each; at most the model's context
  int64_t rows = 256;    // of one pass, at most
};

struct PassOptions {
  int64_t logits = 0;  // of so many rows at the end
  // On the CPU: a row's result has the same bits whatever other rows there are. For few rows, which it makes
  // as fast as reading the weights; many rows are faster without.
  bool alone = true;
};

class Decoder {
 public:
  // RunError 618 where there is no memory for the cache.
  Decoder(Session& session, const DecodeSizes& sizes);
  ~Decoder();
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  // Of rows [first, first + rows) among those whose logits are wanted: [rows, vocab()], until `use` returns.
  using Use = std::function<void(int64_t first, int64_t rows, const float* logits)>;
  void pass(std::span<const DecodeRow> rows, const PassOptions& options, const Use& use);
  // The keys and values of a slot's first tokens, to another slot.
  void copy(int32_t from, int32_t to, int64_t tokens);
  // Before a text of so many tokens is read: some models turn positions by how long a text is. One table
  // serves all slots, so such texts are decoded one at a time (depends_on_length).
  void begin_text(int64_t tokens);
  // Whether texts of up to so many tokens need tables of their own.
  bool depends_on_length(int64_t tokens) const;

  // The number of tokens behind which a text is read again from its beginning, with the table of longer
  // texts: as transformers generates with Phi-3's LongRoPE. 0: never.
  int64_t read_again_behind() const;

  const DecodeSizes& sizes() const { return sizes_; }
  int64_t vocab() const { return session_.plan.model->vocab; }
  int64_t passes() const { return passes_; }

 private:
  struct Call {
    const model::Segment* segment;
    std::shared_ptr<model::Frame> frame;
    std::function<void()> dequantize = nullptr;  // of its weights, before it; null: they are as it reads them
  };
  void allocate_caches();
  int64_t upload(std::span<const DecodeRow> rows);
  void give_logits(const PassOptions& options, int64_t rows, const Use& use);

  Session& session_;
  DecodeSizes sizes_;
  bool pads_ = false;       // passes are padded to few sizes, with rows of a slot that nobody reads
  bool by_length_ = false;  // of the model's tables
  program::Program program_;
  std::unique_ptr<Memory> memory_;
  Staging staging_;
  std::unique_ptr<Binder> binder_;
  std::vector<Call> calls_;  // the head is the last
  std::vector<void*> caches_;
  void* workspace_ = nullptr;
  int32_t* places_ = nullptr;  // slots, then positions, on the device
  device::Tensor input_, logits_;
  std::vector<int32_t> words_;
  std::vector<char> raw_;
  std::vector<float> host_logits_;
  int64_t passes_ = 0;
};

// The rows of a text's tokens [first, first + count), in chunks of one pass each.
void for_chunks(std::span<const int32_t> text, int32_t slot, int64_t chunk,
                const std::function<void(std::span<const DecodeRow>, bool last)>& use);

}  // namespace lockstep::run
