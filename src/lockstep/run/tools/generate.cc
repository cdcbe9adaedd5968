#include "lockstep/run/tools/generate.h"

#include <algorithm>
#include <chrono>

#include "lockstep/base/error.h"

namespace lockstep::run {

namespace {

// Products of so few rows are faster as the decoder's own than as BLAS's.
constexpr size_t kFewRows = 8;

int64_t longest_of(const Session& session, const GenerateSizes& sizes) {
  const int64_t context = session.plan.model->context;
  return sizes.longest > 0 ? std::min(sizes.longest, context) : context;
}

// One slot more than texts: for a prompt that several of them share.
DecodeSizes decode_sizes(const Session& session, const GenerateSizes& sizes) {
  return {.slots = sizes.batch + (sizes.batch > 1 ? 1 : 0), .capacity = longest_of(session, sizes)};
}

int64_t drawable(const Session& session) {
  return std::min<int64_t>(session.plan.dataset->vocab(), session.plan.model->vocab);
}

class Timer {
 public:
  explicit Timer(double& seconds) : seconds_(seconds), begin_(Clock::now()) {}
  ~Timer() { seconds_ += std::chrono::duration<double>(Clock::now() - begin_).count(); }
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

 private:
  using Clock = std::chrono::steady_clock;
  double& seconds_;
  Clock::time_point begin_;
};

}  // namespace

Generator::Generator(Session& session, const GenerateSizes& sizes)
    : session_(session),
      batch_(sizes.batch),
      decoder_(session, decode_sizes(session, sizes)),
      sampler_(drawable(session)) {
  if (decoder_.depends_on_length(longest_of(session, sizes))) batch_ = 1;
}

void Generator::Running::add(int32_t token) {
  text.push_back(token);
  if (token < 0 || static_cast<size_t>(token) >= is_seen.size() || is_seen[static_cast<size_t>(token)])
    return;
  is_seen[static_cast<size_t>(token)] = true;
  seen.push_back(token);
}

void Generator::read(Running& running, size_t begin) {
  const Timer timer(times_.read_seconds);
  const std::span<const int32_t> text = std::span(running.text).subspan(begin);
  decoder_.begin_text(static_cast<int64_t>(text.size()));
  for_chunks(text, running.slot, decoder_.sizes().rows, [&](std::span<const DecodeRow> rows, bool last) {
    decoder_.pass(
        rows, {.logits = last ? 1 : 0, .alone = rows.size() <= kFewRows},
        [&](int64_t, int64_t, const float* logits) { logits_.assign(logits, logits + decoder_.vocab()); });
  });
  running.begin = begin;
  running.position = static_cast<int64_t>(text.size());
  times_.read_tokens += running.position;
}

void Generator::draw(const Job& job, Running& running, const float* logits) {
  const uint64_t sample = job.requests[running.request].sample;
  const Drawn drawn = sampler_.draw(logits, running.seen, job.options, sample, running.drawn++);
  running.add(drawn.token);
  ++times_.drawn_tokens;
  running.done =
      !job.emit(running.request, drawn) || static_cast<int64_t>(running.drawn) >= job.options.tokens;
}

// Reads the prompt, or takes it from the spare slot, and draws the first token.
void Generator::start(const Job& job, Running& running) {
  const std::vector<Request>& requests = job.requests;
  const Request& request = requests[running.request];
  const int64_t context = session_.plan.model->context;
  LS_ASSERT(!request.prompt.empty() && static_cast<int64_t>(request.prompt.size()) <= context,
            "a prompt that the model cannot read");
  running.is_seen.assign(job.options.repetition_penalty != 1 ? static_cast<size_t>(decoder_.vocab()) : 0,
                         false);
  for (const int32_t token : request.prompt) running.add(token);
  const auto spare = static_cast<int32_t>(batch_);
  const bool has_spare = decoder_.sizes().slots > batch_;
  if (has_spare && shared_ != SIZE_MAX && requests[shared_].prompt == request.prompt) {
    decoder_.copy(spare, running.slot, static_cast<int64_t>(request.prompt.size()));
    running.position = static_cast<int64_t>(request.prompt.size());
    return draw(job, running, shared_logits_.data());
  }
  read(running, 0);
  const size_t next = running.request + 1;
  if (has_spare && next < requests.size() && requests[next].prompt == request.prompt) {
    decoder_.copy(running.slot, spare, running.position);
    shared_ = running.request;
    shared_logits_ = logits_;
  }
  draw(job, running, logits_.data());
}

// One more token for each text; those whose context is full are read again from their later half.
void Generator::step(const Job& job, const std::vector<Running*>& running) {
  const int64_t context = session_.plan.model->context;
  rows_.clear();
  of_rows_.clear();
  for (Running* each : running) {
    const bool again = decoder_.read_again_behind() > 0 && each->position == decoder_.read_again_behind();
    if (each->position < context && !again) {
      rows_.push_back({each->text.back(), each->slot, static_cast<int32_t>(each->position++)});
      of_rows_.push_back(each);
      continue;
    }
    const auto half = static_cast<size_t>(std::max<int64_t>(1, context / 2));
    read(*each, each->position < context ? each->begin : each->text.size() - half);
    draw(job, *each, logits_.data());
  }
  const Timer timer(times_.drawn_seconds);
  decoder_.pass(rows_, {.logits = static_cast<int64_t>(rows_.size())},
                [&](int64_t first, int64_t rows, const float* logits) {
                  for (int64_t k = 0; k < rows; ++k)
                    draw(job, *of_rows_[static_cast<size_t>(first + k)], logits + k * decoder_.vocab());
                });
}

void Generator::run(const std::vector<Request>& requests, const SamplingOptions& options, const Emit& emit,
                    const std::atomic<int>* stop) {
  const Job job{requests, options, emit};
  shared_ = SIZE_MAX;
  std::vector<Running> slots(static_cast<size_t>(batch_));
  std::vector<Running*> running;
  std::vector<int32_t> free;
  for (int64_t slot = batch_; slot-- > 0;) free.push_back(static_cast<int32_t>(slot));
  size_t next = 0;
  const auto stopped = [&] { return stop != nullptr && stop->load() != 0; };
  while (!stopped() && (next < requests.size() || !running.empty())) {
    while (!stopped() && next < requests.size() && !free.empty()) {
      Running& one = slots[static_cast<size_t>(free.back())];
      one = {.request = next++, .slot = free.back()};
      start(job, one);
      if (one.done) continue;
      running.push_back(&one);
      free.pop_back();
    }
    if (!running.empty()) step(job, running);
    std::erase_if(running, [&](const Running* one) {
      if (one->done) free.push_back(one->slot);
      return one->done;
    });
  }
}

}  // namespace lockstep::run
