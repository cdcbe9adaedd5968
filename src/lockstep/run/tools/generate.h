// Generation: samples text from a model, a token at a time, with cached keys and values.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "lockstep/run/executor/bind.h"
#include "lockstep/run/session/session.h"

namespace lockstep::run {

struct SamplingOptions {
  int64_t tokens = 200;    // how many to draw
  double temperature = 1;  // 0: always the likeliest
  int64_t top_k = 0;       // 0: all
  uint64_t seed = 1;       // token n is a function of (seed, n) and the text before it
};

class Generator {
 public:
  explicit Generator(Session& session);
  ~Generator();
  // Calls `emit` for every drawn token until it returns false or enough are drawn. When the context is full,
  // the later half of the text is kept and read again.
  void run(const std::vector<int32_t>& prompt, const SamplingOptions& options,
           const std::function<bool(int32_t)>& emit);

 private:
  const std::vector<float>& feed(int32_t token, int64_t position);  // logits of what comes next
  struct Call {
    const model::Segment* segment;
    std::shared_ptr<model::Frame> frame;
  };
  Session& session_;
  program::Program program_;
  std::unique_ptr<Memory> memory_;
  Staging staging_;
  std::unique_ptr<Binder> binder_;
  std::vector<Call> calls_;
  std::vector<void*> caches_;
  device::Tensor input_, logits_;
  std::vector<float> host_logits_;
};

}  // namespace lockstep::run
