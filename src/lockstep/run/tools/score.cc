#include "lockstep/run/tools/score.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/device/thread_pool.h"

namespace lockstep::run {

namespace {

// As many texts at once as short ones fill a pass with; the cache is bounded all the same.
DecodeSizes sizes_for(const Session& session, int64_t longest) {
  constexpr int64_t kCachedTokens = 8192, kMostTexts = 64;
  const bool cuda = session.plan.device->id().kind == device::Kind::cuda;
  const int64_t length = std::max<int64_t>(1, longest);
  return {.slots = std::clamp<int64_t>(kCachedTokens / length, 1, kMostTexts),
          .capacity = length,
          .rows = cuda ? 4096 : 512};
}

bool is_likeliest(const float* logits, int64_t vocab, int32_t label) {
  const float own = logits[label];
  bool beaten = false;
  for (int64_t i = 0; i < vocab; ++i) beaten |= logits[i] > own || (logits[i] == own && i < label);
  return !beaten;
}

}  // namespace

Scorer::Scorer(Session& session, int64_t longest)
    : session_(session), decoder_(session, sizes_for(session, longest)) {}

// Rows with logits stand behind the others, where the decoder wants them.
void Scorer::compute(Pass& pass, std::vector<Score>& scores) {
  rows_ = pass.context;
  rows_.insert(rows_.end(), pass.scored.begin(), pass.scored.end());
  const int64_t vocab = decoder_.vocab();
  const kernels::Kernels& cpu = kernels::kernels_for(device::Kind::cpu);
  decoder_.pass(rows_, {.logits = static_cast<int64_t>(pass.scored.size()), .alone = false},
                [&](int64_t first, int64_t rows, const float* logits) {
                  labels_.clear();
                  for (int64_t k = 0; k < rows; ++k)
                    labels_.push_back(pass.labels[static_cast<size_t>(first + k)].label);
                  losses_.resize(static_cast<size_t>(rows));
                  greedy_.assign(static_cast<size_t>(rows), 0);
                  cpu.cross_entropy({.rows = rows,
                                     .vocab = vocab,
                                     .logits = const_cast<float*>(logits),  // read alone, without `gradient`
                                     .labels = labels_.data(),
                                     .losses = losses_.data()},
                                    {});
                  device::run_items(rows, device::thread_count(), [&](int64_t k, int) {
                    const auto at = static_cast<size_t>(k);
                    greedy_[at] = is_likeliest(logits + k * vocab, vocab, labels_[at]) ? 1 : 0;
                  });
                  for (size_t k = 0; k < static_cast<size_t>(rows); ++k) {
                    Score& score = scores[pass.labels[static_cast<size_t>(first) + k].item];
                    ++score.tokens;
                    score.logprob -= static_cast<double>(losses_[k]);
                    score.greedy = score.greedy && greedy_[k] != 0;
                  }
                });
  pass = {};
}

bool Scorer::run(const std::vector<ScoreItem>& items,
                 const std::function<void(size_t item, const Score&)>& use, const std::atomic<int>* stop) {
  std::vector<Score> scores(items.size());
  Pass pass;
  size_t given = 0;
  bool own_tables = true;  // what the decoder's tables are for is not known yet
  const auto flush = [&](size_t complete) {
    compute(pass, scores);
    for (; given < complete; ++given) use(given, scores[given]);
  };
  const auto rows_of = [](const Pass& of) {
    return static_cast<int64_t>(of.context.size() + of.scored.size());
  };
  for (size_t i = 0; i < items.size(); ++i) {
    const ScoreItem& item = items[i];
    const auto length = static_cast<int64_t>(item.tokens.size());
    LS_ASSERT(item.first >= 1 && length <= decoder_.sizes().capacity + 1, "an item that cannot be scored");
    // A text that needs tables of its own does not share a pass.
    const bool alone = decoder_.depends_on_length(length);
    if (alone || static_cast<int64_t>(pass.texts) >= decoder_.sizes().slots - 1) flush(i);
    if (alone || own_tables) decoder_.begin_text(length);
    own_tables = alone;
    const auto slot = static_cast<int32_t>(pass.texts++);
    for (int64_t t = 0; t + 1 < length; ++t) {
      const DecodeRow row{item.tokens[static_cast<size_t>(t)], slot, static_cast<int32_t>(t)};
      if (t + 1 < item.first) {
        pass.context.push_back(row);
      } else {
        pass.scored.push_back(row);
        pass.labels.push_back({i, item.tokens[static_cast<size_t>(t + 1)]});
      }
      if (rows_of(pass) < decoder_.sizes().rows) continue;
      const size_t texts = pass.texts;
      flush(i);
      pass.texts = texts;  // the text goes on in its slot
    }
    if (alone) flush(i + 1);
    if (stop != nullptr && stop->load() != 0) return false;
  }
  flush(items.size());
  return true;
}

}  // namespace lockstep::run
