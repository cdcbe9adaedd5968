#include "lockstep/run/session/fitting.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep::run {

namespace {

using device::DType;

// From the least computation to the most; `price` is about how much longer a step takes.
struct Recomputation {
  const char* name;
  double price;
  const char* words;
};
constexpr Recomputation kRecomputations[] = {
    {"none", 0, ""},
    {"cheap", 0.02, "recomputes norms and activations"},
    {"up", 0.06, "a little more computation"},
    {"every-2", 0.33, "about a third more computation"},
    {"full", 0.34, "about a third more computation"},
};

const Recomputation* find_recomputation(const std::string& name) {
  for (const Recomputation& one : kRecomputations) {
    if (name == one.name) return &one;
  }
  return nullptr;
}

double doublings(int64_t more, int64_t less) {
  return std::log2(static_cast<double>(more) / static_cast<double>(less));
}

double price_of(const Plan& plan, const Variant& v) {
  constexpr double kSmallerProducts = 0.03, kFewerStrands = 0.02, kRounding = 0.05, kOffload = 0.25,
                   kFewerRows = 0.004;
  const Variant now = variant_of(plan);
  double price = kSmallerProducts * doublings(v.slices, now.slices);
  price += kFewerStrands * std::abs(doublings(now.strands, v.strands));
  if (v.moments != now.moments) price += kRounding;
  if (v.offload != now.offload) price += kOffload;
  if (v.logits_chunk > 0) price += kFewerRows * doublings(now.logits_chunk, v.logits_chunk);
  const Recomputation* again = find_recomputation(v.recompute);
  return price + (again != nullptr ? again->price : 0);
}

std::vector<int64_t> slices_to_try(const Plan& plan, const Freedom& freedom) {
  const int64_t now = variant_of(plan).slices, global = plan.recipe().batch.global;
  std::vector<int64_t> found;
  for (int64_t n = freedom.fewer_slices ? 1 : now; n <= (freedom.slices ? global : now); ++n) {
    if (global % n == 0) found.push_back(n);
  }
  return found;
}

// As they are, by halves, and with shared gradients one a slice, after which nothing whole is kept.
std::vector<int64_t> strands_to_try(const Plan& plan, const Freedom& freedom, int64_t slices) {
  const int64_t now = variant_of(plan).strands;
  std::vector<int64_t> found;
  if (slices % now == 0) found.push_back(now);
  if (!freedom.strands) return found;
  for (int64_t n = std::min(now - 1, slices); n >= std::max<int64_t>(1, plan.layout.ranks.width()); --n) {
    if (slices % n == 0 && (found.empty() || 2 * n <= found.back())) found.push_back(n);
  }
  if (plan.layout.ranks.zero >= 2 && now < slices) found.push_back(slices);
  return found;
}

std::vector<std::string> recomputations_to_try(const Plan& plan, const Freedom& freedom) {
  const std::string now = variant_of(plan).recompute;
  if (!freedom.recompute) return {now};
  const Recomputation* first = find_recomputation(now);
  if (first == nullptr) return {now, "full"};  // segments that the user has named
  std::vector<std::string> found;
  for (const Recomputation* one = first; one != std::end(kRecomputations); ++one) {
    if (one->name == std::string("up") && !has_segment(*plan.model, "up")) continue;
    found.push_back(one->name);
  }
  return found;
}

// As they are, and a quarter and a sixteenth of it: in many models the logits are the largest thing of all.
// 0: as it is.
std::vector<int64_t> chunks_to_try(const Plan& plan, const Freedom& freedom) {
  std::vector<int64_t> found{0};
  if (!freedom.logits || plan.own_model || !plan.model->predicts_tokens) return found;
  constexpr int64_t kLeastRows = 64;
  const int64_t now =
      std::min(variant_of(plan).logits_chunk, plan.layout.slice.samples * plan.recipe().data.seq_len);
  for (const int64_t part : {4, 16}) {
    const int64_t rows = now / part / kLeastRows * kLeastRows;
    if (rows >= kLeastRows && rows < now) found.push_back(rows);
  }
  return found;
}

bool is_allowed(const Plan& plan, const Variant& variant) {
  try {
    check_variant(plan, variant);
    return true;
  } catch (const base::ConfigError&) {
    return false;
  }
}

// All that the freedom and the layout allow, the cheapest first.
std::vector<Variant> variants_of(const Plan& plan, const Freedom& freedom) {
  const Variant now = variant_of(plan);
  std::vector<DType> moments{now.moments};
  if (freedom.moments && plan.optimizer.keeps_state() && now.moments == DType::f32)
    moments.push_back(DType::bf16);
  std::vector<bool> offloads{now.offload};
  const bool gpu = plan.device->id().kind != device::Kind::cpu;
  if (freedom.offload && gpu && plan.optimizer.keeps_state() && !now.offload) offloads.push_back(true);
  const std::vector<int64_t> chunks = chunks_to_try(plan, freedom);
  std::vector<Variant> all;
  for (const int64_t slices : slices_to_try(plan, freedom)) {
    for (const int64_t strands : strands_to_try(plan, freedom, slices)) {
      if (!is_allowed(plan, {.slices = slices, .strands = strands})) continue;
      for (const std::string& recompute : recomputations_to_try(plan, freedom)) {
        for (const DType type : moments) {
          for (const bool offload : offloads) {
            for (const int64_t chunk : chunks)
              all.push_back({slices, strands, recompute, type, offload, chunk});
          }
        }
      }
    }
  }
  std::stable_sort(all.begin(), all.end(),
                   [&](const Variant& a, const Variant& b) { return price_of(plan, a) < price_of(plan, b); });
  return all;
}

// Without a pipeline every strand repeats itself from its second slice on, and so does its memory: two slices
// a strand are compiled in place of many.
program::MemoryPlan memory_of(const Plan& plan, const Variant& variant, bool exactly) {
  program::Layout layout = layout_of(plan, variant);
  constexpr int64_t kAlike = 2;
  if (!exactly && layout.stages.count == 1)
    layout.slices = layout.strands * std::min(kAlike, layout.slices / layout.strands);
  if (variant.logits_chunk > 0) {
    model::Model model = plan.build_part(plan.model->parts, variant.logits_chunk);
    model.input_words = plan.model->input_words, model.label_words = plan.model->label_words;
    program::Program program = program::compile(model, layout);
    return program::place(program);
  }
  program::Program program = program::compile(*plan.model, layout);
  return program::place(program);
}

// Whether strands may need no gradients of their own, having one slice each (Compiler::find_merging): more
// slices then need more memory, not less.
bool may_merge(const Plan& plan, const Variant& v) {
  return v.slices == v.strands && plan.layout.kernels->adds_own_sums;
}

// What decides the memory besides the number of slices.
using Group = std::tuple<int64_t, std::string, DType, bool, int64_t, bool>;
Group group_of(const Plan& plan, const Variant& v) {
  return {v.strands, v.recompute, v.moments, v.offload, v.logits_chunk, may_merge(plan, v)};
}

// Weights and moments, and gradients of as many strands: without these no variant can do.
int64_t least_bytes(const Plan& plan, const Variant& v) {
  using Kind = program::BufferKind;
  const Variant now = variant_of(plan);
  int64_t bytes = 0;
  for (const auto& [kind, held] : plan.memory.persistent_by_kind) {
    if (kind == Kind::optimizer) bytes += v.offload ? 0 : v.moments == now.moments ? held : held / 2;
    if (kind == Kind::master || kind == Kind::compute || kind == Kind::frozen || kind == Kind::quantized)
      bytes += held;
    if (kind == Kind::gradient && v.strands == now.strands && v.slices >= now.slices) bytes += held;
  }
  return bytes;
}

}  // namespace

bool has_segment(const model::Model& model, const std::string& name) {
  return std::any_of(model.blocks.begin(), model.blocks.end(), [&](const model::Block& block) {
    return std::any_of(block.segments().begin(), block.segments().end(),
                       [&](const auto& segment) { return segment->name() == name; });
  });
}

class FittingSearch::Body {
 public:
  Body(const Plan& plan, int64_t bytes) : plan_(plan), bytes_(bytes) {}

  std::optional<Fitting> cheapest(const Freedom& freedom, const std::function<bool(const Variant&)>& wanted) {
    std::vector<Variant> all = variants_of(plan_, freedom);
    std::erase_if(all,
                  [&](const Variant& v) { return (wanted && !wanted(v)) || least_bytes(plan_, v) > bytes_; });
    // More slices never need more: where the most of a group are too much, its others need not be tried.
    std::map<Group, const Variant*> smallest;
    for (const Variant& v : all) {
      const Variant*& one = smallest[group_of(plan_, v)];
      if (one == nullptr || one->slices < v.slices) one = &v;
    }
    for (const Variant& v : all) {
      const Variant& least = *smallest[group_of(plan_, v)];
      if (is_hopeless(least) || is_too_much(least) || is_too_much(v)) continue;
      const program::MemoryPlan memory = memory_of(v, true);
      if (memory.peak_bytes() <= bytes_) return Fitting{v, memory};
    }
    return std::nullopt;
  }

  int compiled() const { return static_cast<int>(known_.size()); }

 private:
  // With all that saves memory besides slices, strands and recomputation, whether it is allowed or not: one
  // or two programs tell that none of its kind can fit. Logits in chunks do not always save: a head that adds
  // to its gradient chunk by chunk keeps one of its own for every strand.
  bool is_hopeless(Variant v) {
    const Freedom rest{.moments = true, .offload = true, .logits = true};
    if (plan_.optimizer.keeps_state()) v.moments = DType::bf16;
    v.offload = v.offload || (plan_.device->id().kind != device::Kind::cpu && plan_.optimizer.keeps_state());
    const std::vector<int64_t> chunks = chunks_to_try(plan_, rest);
    return std::ranges::all_of(std::set<int64_t>{chunks.front(), chunks.back()}, [&](int64_t chunk) {
      v.logits_chunk = chunk;
      return is_too_much(v);
    });
  }
  bool is_too_much(const Variant& v) { return memory_of(v, false).peak_bytes() > bytes_; }

  const program::MemoryPlan& memory_of(const Variant& v, bool exactly) {
    const auto key = std::tuple(group_of(plan_, v), v.slices, exactly);
    const auto found = known_.find(key);
    return found != known_.end() ? found->second
                                 : known_.emplace(key, run::memory_of(plan_, v, exactly)).first->second;
  }

  const Plan& plan_;
  int64_t bytes_;
  std::map<std::tuple<Group, int64_t, bool>, program::MemoryPlan> known_;
};

FittingSearch::FittingSearch(const Plan& plan, int64_t bytes) : body_(std::make_unique<Body>(plan, bytes)) {}
FittingSearch::~FittingSearch() = default;
std::optional<Fitting> FittingSearch::cheapest(const Freedom& freedom,
                                               const std::function<bool(const Variant&)>& wanted) {
  return body_->cheapest(freedom, wanted);
}
int FittingSearch::compiled() const { return body_->compiled(); }

std::optional<Fitting> cheapest_fitting(const Plan& plan, const Freedom& freedom, int64_t bytes) {
  return FittingSearch(plan, bytes).cheapest(freedom);
}

Least least_memory(const Plan& plan, const Freedom& freedom) {
  const std::vector<Variant> all = variants_of(plan, freedom);
  Least least{.fitting = {variant_of(plan), plan.memory}, .combinations = all.size()};
  int64_t most_slices = 0;
  for (const Variant& v : all) most_slices = std::max(most_slices, v.slices);
  for (const Variant& v : all) {
    if (v.slices != most_slices && !may_merge(plan, v)) continue;
    const program::MemoryPlan memory = memory_of(plan, v, false);
    if (memory.peak_bytes() < least.fitting.memory.peak_bytes()) least.fitting = {v, memory};
  }
  least.fitting.memory = memory_of(plan, least.fitting.variant, true);
  return least;
}

std::string change_words(const Plan& plan, const Variant& v) {
  const Variant now = variant_of(plan);
  std::vector<std::string> words;
  if (v.slices != now.slices) words.push_back(fmt::format("batch.slices={}", v.slices));
  if (v.strands != now.strands) words.push_back(fmt::format("batch.strands={}", v.strands));
  if (v.recompute != now.recompute) words.push_back("memory.recompute=" + v.recompute);
  if (v.moments != now.moments) words.push_back("optim.moments=bf16");
  if (v.offload != now.offload) words.push_back("optim.offload=true");
  if (v.logits_chunk > 0 && v.logits_chunk != now.logits_chunk)
    words.push_back(fmt::format("memory.logits_chunk={}", v.logits_chunk));
  return base::join(words, " ");
}

std::string change_price(const Plan& plan, const Variant& v) {
  const Variant now = variant_of(plan);
  std::vector<std::string> words;
  if (v.slices != now.slices) words.push_back("smaller products");
  if (v.strands > now.strands) words.push_back("gradients sharded after every slice, more traffic");
  if (v.strands < now.strands)
    words.push_back(v.strands == 1 ? "for one data rank" : fmt::format("for up to {} data ranks", v.strands));
  const Recomputation* again = find_recomputation(v.recompute);
  if (v.recompute != now.recompute && again != nullptr) words.push_back(again->words);
  if (v.moments != now.moments) words.push_back("moments rounded to bf16");
  if (v.offload != now.offload) words.push_back("moments cross the bus in every step");
  if (v.logits_chunk > 0 && v.logits_chunk != now.logits_chunk) words.push_back("fewer logits at a time");
  const bool same = v.slices == now.slices && v.strands == now.strands && v.moments == now.moments &&
                    (v.logits_chunk == 0 || v.logits_chunk == now.logits_chunk);
  words.push_back(same ? "same bits" : "other bits");
  return base::join(words, "; ");
}

}  // namespace lockstep::run
