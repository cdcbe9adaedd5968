// Generation: continues texts, several at once, each as if it were alone.
//
// A prompt is read in passes of many tokens, then each step draws one token for every text. A text's tokens
// are a function of (seed, sample, prompt): which other texts are under way changes nothing, on the CPU not a
// bit of the logits (decoder.h), elsewhere no more than their rounding. A text that ends makes place for the
// next.
//
//     Generator generator(session, {.batch = 8, .longest = 512});
//     generator.run(requests, options, [&](size_t request, const Drawn& drawn) { ...; return true; });
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <vector>

#include "lockstep/run/tools/decoder.h"
#include "lockstep/run/tools/sampler.h"

namespace lockstep::run {

struct GenerateSizes {
  int64_t batch = 1;    // texts at once
  int64_t longest = 0;  // tokens of the longest text, prompt and drawn ones together; 0: the model's context
};

struct Request {
  std::vector<int32_t> prompt;  // at least one token, at most the model's context
  uint64_t sample = 0;          // which of several texts of this prompt
};

// How long it took: reading prompts, and drawing.
struct GenerateTimes {
  int64_t read_tokens = 0, drawn_tokens = 0;
  double read_seconds = 0, drawn_seconds = 0;
};

class Generator {
 public:
  Generator(Session& session, const GenerateSizes& sizes);
  // False: this text ends here.
  using Emit = std::function<bool(size_t request, const Drawn& drawn)>;
  // Draws options.tokens tokens for every request, or fewer where `emit` says so; ends early when `stop` is
  // not 0. When the context is full, the later half of the text is kept and read again. Requests of the same
  // prompt that follow each other read it once.
  void run(const std::vector<Request>& requests, const SamplingOptions& options, const Emit& emit,
           const std::atomic<int>* stop = nullptr);
  const GenerateTimes& times() const { return times_; }

 private:
  struct Running {
    size_t request = 0;
    int32_t slot = 0;
    std::vector<int32_t> text, seen;  // seen: distinct tokens of it
    std::vector<bool> is_seen;
    size_t begin = 0;      // the first token that is in the cache
    int64_t position = 0;  // tokens in the cache
    uint64_t drawn = 0;
    bool done = false;
    void add(int32_t token);
  };
  struct Job {  // what run() was called with
    const std::vector<Request>& requests;
    const SamplingOptions& options;
    const Emit& emit;
  };
  void start(const Job& job, Running& running);
  void read(Running& running, size_t begin);  // the text from there on; logits_ are of its end
  void step(const Job& job, const std::vector<Running*>& running);
  void draw(const Job& job, Running& running, const float* logits);

  Session& session_;
  int64_t batch_;
  Decoder decoder_;
  Sampler sampler_;
  std::vector<float> logits_;         // of the last prompt that was read
  std::vector<float> shared_logits_;  // of the prompt in the spare slot
  size_t shared_ = SIZE_MAX;          // the request whose prompt lies there
  GenerateTimes times_;
  std::vector<DecodeRow> rows_;
  std::vector<Running*> of_rows_;
};

}  // namespace lockstep::run
