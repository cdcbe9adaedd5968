// The head where tensor ranks hold parts of the vocabulary: no rank ever has a whole row of logits, and none
// more than memory.logits_chunk rows of its part.
#include <algorithm>

#include "lockstep/base/round.h"
#include "lockstep/model/segments/parts.h"
#include "lockstep/model/segments/strands.h"

namespace lockstep::model {

namespace {

// In each round, the first part makes logits of some rows and what they say of each row; when the ranks have
// exchanged that, the second part makes losses and gradients of it. Of pairs, whose gradients are known only
// when the losses of all rows are, there are as many rounds again: the first half makes losses, the second
// gradients.
class VocabHead : public Segment {
 public:
  VocabHead(HeadOptions options, const Parts& parts)
      : o_(std::move(options)), parts_(parts), map_(logits_map(o_, rows_of_part(o_.vocab, parts.tensor))) {}
  std::string name() const override { return "logits"; }

  std::vector<ParamSpec> params() const override {
    const Cut cut = cut_rows(o_.vocab, parts_.tensor_rank, parts_.tensor);
    std::vector<ParamSpec> specs = {{.key = "weight",
                                     .name = o_.name + ".weight",
                                     .shape = map_.weight_shape(),
                                     .init = {Init::Kind::normal, o_.init_std},
                                     .cut = cut,
                                     .tied_to = o_.tied_to,
                                     .table = true}};
    if (o_.bias) {
      specs.push_back(
          {.key = "bias", .name = o_.name + ".bias", .shape = {map_.out}, .decay = false, .cut = cut});
    }
    return specs;
  }

  SegmentPlan plan(const SliceShape& shape, const kernels::Kernels& kernels) const override {
    const int64_t tokens = shape.tokens(), chunk = chunk_rows(tokens);
    SegmentPlan plan;
    plan.inputs = {"normed"};
    plan.batch = {"labels"};
    plan.loss = true;
    plan.scratch = {{Part::forward, {"logits", o_.type, {chunk, map_.row_of_y()}}},
                    {Part::forward, {"losses", DType::f32, {tokens}}}};
    if (o_.pairs) add_pairs_to(plan, tokens);
    for (int pass = 0; pass < passes(); ++pass) {
      for (int64_t begin = 0; begin < tokens; begin += chunk)
        plan.rounds.push_back({"stats", DType::f32, {std::min(chunk, tokens - begin), 3}});
    }
    map_.add_to(plan, chunk, "in.normed", "");
    plan.workspace = std::max(map_.workspace(chunk, kernels),
                              o_.bias ? kernels::bias_backward_workspace(chunk, map_.out) : 0);
    return plan;
  }

  void prepare(const Frame& f) const override { map_.prepare(f); }

  void forward(const Frame& f) const override {
    const int64_t tokens = f.slice.tokens(), chunk = chunk_rows(tokens);
    const int64_t round = f.part / 2, rounds = base::divide_up(tokens, chunk);
    const int64_t begin = round % rounds * chunk;
    const Rows rows{begin, std::min(chunk, tokens - begin)};
    const bool last_pass = round / rounds + 1 == passes();
    if (f.part % 2 == 0) return make_logits(f, rows);
    const bool gradient = f.slice.training && last_pass;
    if (f.slice.training && o_.pairs && round == 0 && !f.accumulate) clear_gradients(f);
    make_losses(f, rows, gradient);
    if (gradient) make_gradients(f, rows);
    if (rows.begin + rows.count < tokens) return;
    if (!o_.pairs) return f.kernels->loss_sum({tokens, f.scratch("losses").as<float>(), f.loss}, f.launch);
    if (!last_pass) weigh_pairs(*o_.pairs, f);
  }

  void backward_input(const Frame&) const override {}

  Cost cost(const SliceShape& shape, Part part) const override {
    Cost cost = map_.cost(shape.tokens(), part);
    if (part == Part::forward) cost.bytes = 4 * shape.tokens() * map_.out * device::size_of(o_.type);
    return cost;
  }

 private:
  struct Rows {
    int64_t begin = 0, count = 0;
  };
  int passes() const { return o_.pairs ? 2 : 1; }
  int64_t chunk_rows(int64_t tokens) const { return o_.chunk > 0 ? std::min(o_.chunk, tokens) : tokens; }
  // Without padding, which takes no part in the softmax: its columns of logits are of rows of zeros.
  int64_t tokens_here() const { return true_rows(o_.vocab, parts_.tensor_rank, parts_.tensor); }
  int64_t first_token() const { return map_.out * parts_.tensor_rank; }
  char* row_of(const Tensor& wide, const Rows& rows) const {
    return wide.as<char>() + rows.begin * o_.width * device::size_of(o_.type);
  }

  void make_logits(const Frame& f, const Rows& rows) const {
    const Tensor logits = f.scratch("logits");
    map_.forward(f, row_of(f.in("normed"), rows), f.weight("weight").data, bias_of(o_, f), logits.data,
                 rows.count);
    cap_logits(o_, f, logits, rows.count * map_.row_of_y());
    f.kernels->vocab_stats({.type = o_.type,
                            .rows = rows.count,
                            .vocab = tokens_here(),
                            .first = first_token(),
                            .row = map_.row_of_y(),
                            .logits = logits.data,
                            .labels = f.batch("labels").as<int32_t>() + rows.begin,
                            .stats = f.out("stats").as<float>()},
                           f.launch);
  }

  // With `gradient`, logits become their own gradient in place.
  void make_losses(const Frame& f, const Rows& rows, bool gradient) const {
    f.kernels->vocab_cross_entropy(
        {.type = o_.type,
         .rows = rows.count,
         .vocab = tokens_here(),
         .first = first_token(),
         .parts = parts_.tensor,
         .row = map_.row_of_y(),
         .logits = f.scratch("logits").data,
         .labels = f.batch("labels").as<int32_t>() + rows.begin,
         .stats = f.in("stats").as<float>(),
         .losses = f.scratch("losses").as<float>() + rows.begin,
         .gradient = gradient,
         .inputs = f.inputs,
         .state = f.state,
         .softcap = o_.softcap,
         .weights = o_.pairs && gradient ? f.scratch("weights").as<float>() + rows.begin : nullptr},
        f.launch);
  }

  // Later rounds add to what the first one writes, and of pairs that is none yet.
  void clear_gradients(const Frame& f) const {
    for (const char* key : {"weight", "bias"}) {
      if ((key == std::string_view("bias") && !o_.bias) || !f.trains(key)) continue;
      const Tensor gradient = f.grad(key);
      f.kernels->fill_value({gradient.numel(), gradient.as<float>(), 0}, f.launch);
    }
  }

  void make_gradients(const Frame& f, const Rows& rows) const {
    const Tensor dlogits = f.scratch("logits");
    if (f.input_gradient)
      map_.backward_input(f, dlogits.data, f.weight("weight").data, row_of(f.din("normed"), rows),
                          rows.count);
    if (f.trains("weight"))
      map_.backward_weight(f, row_of(f.in("normed"), rows), dlogits.data, f.grad("weight").data, rows.count,
                           f.accumulate);
    if (o_.bias && f.trains("bias")) {
      f.kernels->bias_backward(
          {o_.type, rows.count, map_.out, dlogits.data, f.grad("bias").as<float>(), f.accumulate}, f.launch);
    }
  }

  HeadOptions o_;
  Parts parts_;
  LinearMap map_;
};

}  // namespace

void add_vocab_head(std::vector<std::unique_ptr<Segment>>& segments, HeadOptions options,
                    const Parts& parts) {
  if (!parts.fixes_products())
    return segments.push_back(std::make_unique<VocabHead>(std::move(options), parts));
  const SharedInput normed{"normed", options.type, options.width};
  segments.push_back(in_strands(parts, {.shared = {normed}, .loss = true},
                                [&](const Parts& one) { return std::make_unique<VocabHead>(options, one); }));
}

}  // namespace lockstep::model
