#include <algorithm>

#include "lockstep/base/round.h"
#include "lockstep/model/segments/parts.h"

namespace lockstep::model {

namespace {

class Head : public Segment {
 public:
  explicit Head(HeadOptions options) : o_(std::move(options)), map_(logits_map(o_, o_.vocab)) {
    map_.fp8 = o_.fp8;
  }
  std::string name() const override { return "logits"; }
  bool adds_gradients_once(const SliceShape& shape) const override {
    return chunk_rows(shape.tokens()) == shape.tokens();
  }

  std::vector<ParamSpec> params() const override {
    std::vector<ParamSpec> specs = {{.key = "weight",
                                     .name = o_.name + ".weight",
                                     .shape = map_.weight_shape(),
                                     .init = {Init::Kind::normal, o_.init_std},
                                     .tied_to = o_.tied_to,
                                     .table = true}};
    if (o_.bias)
      specs.push_back({.key = "bias", .name = o_.name + ".bias", .shape = {o_.vocab}, .decay = false});
    return specs;
  }

  SegmentPlan plan(const SliceShape& shape, const kernels::Kernels& kernels) const override {
    const int64_t rows = chunk_rows(shape.tokens());
    SegmentPlan plan;
    plan.inputs = {"normed"};
    plan.batch = {"labels"};
    plan.loss = true;
    plan.scratch = {{Part::forward, {"logits", o_.type, {rows, map_.row_of_y()}}},
                    {Part::forward, {"losses", DType::f32, {shape.tokens()}}}};
    if (o_.pairs) add_pairs_to(plan, shape.tokens());
    map_.add_to(plan, rows, "in.normed", "");
    plan.workspace = workspace(shape.tokens(), kernels);
    return plan;
  }

  void prepare(const Frame& f) const override { map_.prepare(f); }

  // Logits of a chunk become their own gradient in place, and are gone before the next chunk. Of pairs,
  // gradients are known only when the whole slice's losses are: chunks are gone through twice, and only one
  // that is all of the slice is kept in between.
  void forward(const Frame& f) const override {
    const int64_t tokens = f.slice.tokens(), chunk = chunk_rows(tokens);
    if (o_.pairs) {
      for (int64_t begin = 0; begin < tokens; begin += chunk) {
        const Rows rows{begin, std::min(chunk, tokens - begin)};
        make_logits(f, rows);
        make_losses(f, rows, false);
      }
      weigh_pairs(*o_.pairs, f);
      if (!f.slice.training) return;
    }
    for (int64_t begin = 0; begin < tokens; begin += chunk) {
      const Rows rows{begin, std::min(chunk, tokens - begin)};
      if (!o_.pairs || chunk < tokens) make_logits(f, rows);
      make_losses(f, rows, f.slice.training);
      if (f.slice.training) make_gradients(f, rows);
    }
    if (!o_.pairs) f.kernels->loss_sum({tokens, f.scratch("losses").as<float>(), f.loss}, f.launch);
  }

  void backward_input(const Frame&) const override {}

  // `generate`: logits of the wanted rows, nothing more.
  void decode(const Frame& f) const override {
    LinearMap plain = map_;
    plain.padded_out = 0;
    const Tensor logits = f.scratch("logits");
    const char* x = f.in("normed").as<char>() + f.wanted.first * o_.width * device::size_of(o_.type);
    plain.forward(f, x, f.weight("weight").data, bias_of(o_, f), logits.data, f.wanted.rows);
    cap_logits(o_, f, logits, f.wanted.rows * o_.vocab);
  }

  Cost cost(const SliceShape& shape, Part part) const override {
    Cost cost = map_.cost(shape.tokens(), part);
    if (part == Part::forward) cost.bytes += 4 * shape.tokens() * o_.vocab * device::size_of(o_.type);
    return cost;
  }

 private:
  struct Rows {
    int64_t begin = 0, count = 0;
  };
  char* row_of(const Tensor& wide, const Rows& rows) const {
    return wide.as<char>() + rows.begin * o_.width * device::size_of(o_.type);
  }

  void make_logits(const Frame& f, const Rows& rows) const {
    const Tensor logits = f.scratch("logits");
    map_.forward(f, row_of(f.in("normed"), rows), f.weight("weight").data, bias_of(o_, f), logits.data,
                 rows.count);
    cap_logits(o_, f, logits, rows.count * map_.row_of_y());
  }

  float* amax_of(const Frame& f, const Rows& rows) const {
    return map_.wants_amax(rows.count) && f.slice.training ? f.scratch("dy8_amax").as<float>() : nullptr;
  }

  void make_losses(const Frame& f, const Rows& rows, bool gradient) const {
    f.kernels->cross_entropy(
        {.type = o_.type,
         .rows = rows.count,
         .vocab = o_.vocab,
         .row = map_.row_of_y(),
         .logits = f.scratch("logits").data,
         .labels = f.batch("labels").as<int32_t>() + rows.begin,
         .losses = f.scratch("losses").as<float>() + rows.begin,
         .gradient = gradient,
         .amax = gradient ? amax_of(f, rows) : nullptr,
         .inputs = f.inputs,
         .state = f.state,
         .softcap = o_.softcap,
         .weights = o_.pairs && gradient ? f.scratch("weights").as<float>() + rows.begin : nullptr},
        f.launch);
  }

  // Of what the logits have become.
  void make_gradients(const Frame& f, const Rows& rows) const {
    const Tensor dlogits = f.scratch("logits");
    const bool accumulate = f.accumulate || rows.begin > 0;
    if (f.input_gradient ||
        map_.in_fp8(rows.count))  // which leaves the copy that the weight's gradient reads
      map_.backward_input(f, dlogits.data, f.weight("weight").data, row_of(f.din("normed"), rows), rows.count,
                          nullptr, amax_of(f, rows));
    if (f.trains("weight"))
      map_.backward_weight(f, row_of(f.in("normed"), rows), dlogits.data, f.grad("weight").data, rows.count,
                           accumulate);
    if (o_.bias && f.trains("bias")) {
      f.kernels->bias_backward(
          {o_.type, rows.count, o_.vocab, dlogits.data, f.grad("bias").as<float>(), accumulate}, f.launch);
    }
  }

  // The last chunk may be shorter, and then of another kind.
  int64_t workspace(int64_t tokens, const kernels::Kernels& kernels) const {
    const int64_t rows = chunk_rows(tokens), rest = tokens % rows;
    const int64_t of_bias = o_.bias ? kernels::bias_backward_workspace(rows, o_.vocab) : 0;
    return std::max({map_.workspace(rows, kernels), rest > 0 ? map_.workspace(rest, kernels) : 0, of_bias});
  }
  // Chunks of nearly equal length, none above o_.chunk: a short last one would make poor products.
  int64_t chunk_rows(int64_t tokens) const {
    if (o_.chunk <= 0 || tokens <= o_.chunk) return tokens;
    const int64_t chunks = base::divide_up(tokens, o_.chunk), even = base::divide_up(tokens, chunks);
    return std::min(o_.chunk, base::round_up(even, 64));
  }
  HeadOptions o_;
  LinearMap map_;
};

}  // namespace

const void* bias_of(const HeadOptions& options, const Frame& f) {
  return options.bias ? f.weight("bias").data : nullptr;
}

void cap_logits(const HeadOptions& options, const Frame& f, const Tensor& logits, int64_t count) {
  if (options.softcap > 0) f.kernels->soft_cap({options.type, count, logits.data, options.softcap}, f.launch);
}

// A bias has no room for columns of padding.
LinearMap logits_map(const HeadOptions& options, int64_t vocab) {
  constexpr int64_t kFew = 1024, kMultiple = 8;
  LinearMap map{
      .in = options.width, .out = vocab, .bias = options.bias, .type = options.type, .at_once = true};
  if (!options.bias && vocab > kFew && vocab % kMultiple != 0 && options.width % kMultiple == 0)
    map.padded_out = base::round_up(vocab, kMultiple);
  return map;
}

void add_pairs_to(SegmentPlan& plan, int64_t tokens) {
  plan.batch.push_back("references");
  plan.scratch.push_back({Part::forward, {"weights", DType::f32, {tokens}}});
}

void weigh_pairs(const PairOptions& pairs, const Frame& f) {
  f.kernels->preference_loss({.pairs = f.slice.samples / 2,
                              .length = f.slice.seq_len,
                              .labels = f.batch("labels").as<int32_t>(),
                              .losses = f.scratch("losses").as<float>(),
                              .references = f.batch("references").as<double>(),
                              .beta = pairs.beta,
                              .smoothing = pairs.smoothing,
                              .sequences = f.sequences,
                              .weights = f.scratch("weights").as<float>(),
                              .sum = f.loss},
                             f.launch);
}

void add_head(std::vector<std::unique_ptr<Segment>>& segments, HeadOptions options, const Parts& parts) {
  if (parts.cuts_products()) return add_vocab_head(segments, std::move(options), parts);
  segments.push_back(std::make_unique<Head>(std::move(options)));
}

}  // namespace lockstep::model
