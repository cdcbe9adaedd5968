#include "lockstep/model/segments/pieces.h"

#include <fmt/format.h>

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/model/segments/joined.h"

namespace lockstep::model {

namespace {

class Pieces : public Segment {
 public:
  Pieces(std::unique_ptr<Segment> one, int count) : one_(std::move(one)), count_(count) {
    while (1 << levels_ <= count) ++levels_;
  }

  std::string name() const override { return one_->name(); }
  std::vector<ParamSpec> params() const override { return one_->params(); }
  std::vector<BufferSpec> buffers() const override { return one_->buffers(); }
  void fill_buffers(const std::vector<Tensor>& tables, int64_t length) const override {
    one_->fill_buffers(tables, length);
  }
  std::vector<int64_t> column_groups() const override { return one_->column_groups(); }
  bool can_be_captured() const override { return one_->can_be_captured(); }
  std::string numerics(const SliceShape& shape, const kernels::Kernels& kernels) const override {
    return one_->numerics(piece_of(shape), kernels);
  }

  SegmentPlan plan(const SliceShape& shape, const kernels::Kernels& kernels) const override {
    SegmentPlan plan = one_->plan(piece_of(shape), kernels);
    LS_ASSERT(!plan.ring, "a segment in pieces that runs in a ring");
    for (auto* values : {&plan.outputs, &plan.saves, &plan.leaves}) {
      for (ValueSpec& spec : *values) spec.shape = with_rows(spec.shape, spec.shape[0] * count_);
    }
    for (Remake& remake : plan.remakes) remake.moved_bytes *= count_;
    // Rows of a piece overlap rows of another one's where the two values differ in width.
    plan.may_reuse.clear();
    const std::vector<ValueSpec> rounds = plan.rounds;
    for (int k = 1; k < count_; ++k) plan.rounds.insert(plan.rounds.end(), rounds.begin(), rounds.end());
    for (const Joined& joined : joined_params()) {
      for (int level = 0; level < levels_; ++level)
        plan.scratch.push_back({plan.loss ? Part::forward : Part::backward_weight,
                                {sum_name(joined, level), DType::f32, {joined.count()}}});
    }
    return plan;
  }

  void prepare(const Frame& f) const override { one_->prepare(f); }

  void forward(const Frame& f) const override {
    if (f.part >= 0) return one_round(f);
    for (int k = 0; k < count_; ++k) {  // a loss leaves gradients of its weights at once
      Frame own = f.piece(k, count_);
      bind_sums(f, own, k);
      one_->forward(own);
      add_sums(f, k, f.accumulate);
    }
  }

  void decode(const Frame&) const override { LS_ASSERT(false, "texts are continued without pieces"); }

  void backward_input(const Frame& f) const override {
    for (int k = 0; k < count_; ++k) one_->backward_input(f.piece(k, count_));
  }

  void backward_weight(const Frame& f) const override {
    for (int k = 0; k < count_; ++k) {
      Frame own = f.piece(k, count_);
      bind_sums(f, own, k);
      one_->backward_weight(own);
      add_sums(f, k, f.accumulate);
    }
  }

  Cost cost(const SliceShape& shape, Part part) const override {
    Cost total;
    for (int k = 0; k < count_; ++k) total = model::sum(std::move(total), one_->cost(piece_of(shape), part));
    return total;
  }

 private:
  SliceShape piece_of(const SliceShape& shape) const { return {shape.samples / count_, shape.seq_len}; }

  // ---- gradients of weights: a balanced tree over the pieces, with a buffer for each of its levels. Piece k
  // goes to the level above the sums that are there, and halves of a node are added as soon as both are.

  std::vector<Joined> joined_params() const { return model::joined_params(one_->params()); }
  static std::string sum_name(const Joined& joined, int level) {
    return fmt::format("pieces.{}.{}", joined.params.front().key, level);
  }
  static int sums_before(int k) {  // partial sums of pieces 0 to k - 1
    int sums = 0;
    for (int rest = k; rest > 0; rest &= rest - 1) ++sums;
    return sums;
  }
  static bool any_summed(const Frame& f, const Joined& joined) {
    return std::any_of(joined.params.begin(), joined.params.end(),
                       [&](const ParamSpec& spec) { return f.sums(spec.key); });
  }

  // The first slice of a strand finds nothing to add to: its lowest level is the gradient itself.
  static bool is_direct(const Frame& f, const Joined& joined) {
    return f.part < 0 && !f.accumulate &&
           std::all_of(joined.params.begin(), joined.params.end(),
                       [&](const ParamSpec& spec) { return f.sums(spec.key); });
  }
  static float* sum_at(const Frame& f, const Joined& joined, int level) {
    if (level == 0 && is_direct(f, joined)) return f.grad(joined.params.front().key).as<float>();
    return f.scratch(sum_name(joined, level)).as<float>();
  }

  void bind_sums(const Frame& f, Frame& own, int k) const {
    for (const Joined& joined : joined_params()) {
      if (!any_summed(f, joined)) continue;
      float* to = sum_at(f, joined, sums_before(k));
      for (const ParamSpec& spec : joined.params) {
        own.bind("grad." + spec.key, {to, DType::f32, spec.shape});
        to += spec.shape.numel();
      }
    }
    own.accumulate = false;
  }

  // Of pieces 0 to k; behind the last, onto the slice's gradient.
  void add_sums(const Frame& f, int k, bool accumulate) const {
    for (const Joined& joined : joined_params()) {
      if (!any_summed(f, joined)) continue;
      int level = sums_before(k);
      for (int ended = k + 1; ended % 2 == 0; ended /= 2, --level) {
        f.kernels->add({joined.count(), sum_at(f, joined, level - 1), sum_at(f, joined, level)}, f.launch);
      }
      if (k + 1 == count_ && !is_direct(f, joined)) give(f, joined, accumulate);
    }
  }
  void give(const Frame& f, const Joined& joined, bool accumulate) const {
    const auto* from = f.scratch(sum_name(joined, 0)).as<float>();
    for (const ParamSpec& spec : joined.params) {
      const int64_t count = spec.shape.numel();
      if (f.sums(spec.key)) {
        const Tensor to = f.grad(spec.key);
        if (accumulate) {
          f.kernels->add({count, to.as<float>(), from}, f.launch);
        } else {
          f.device->copy(to.data, from, count * static_cast<int64_t>(sizeof(float)),
                         device::CopyKind::device_to_device, f.launch.stream);
        }
      }
      from += count;
    }
  }

  // ---- a loss in rounds: all of the first piece's, then all of the next one's

  void one_round(const Frame& f) const {
    const std::vector<ValueSpec> rounds =
        one_->plan(piece_of({f.slice.samples, f.slice.seq_len}), *f.kernels).rounds;
    const auto each = static_cast<int>(rounds.size());
    const int round = f.part / 2, k = round / each;
    Frame own = f.piece(k, count_);
    own.part = 2 * (round % each) + f.part % 2;
    own.last_part = f.part % 2 == 1 && round % each == each - 1;
    const std::string& given = rounds[static_cast<size_t>(round % each)].name;
    own.bind(f.part % 2 == 0 ? "out." + given : "in." + given, f.part % 2 == 0 ? f.out(given) : f.in(given));
    if (f.part % 2 == 0 || !f.slice.training) return one_->forward(own);
    if (round == 0 && !f.accumulate) clear_gradients(f);  // later rounds do not know that they are the first
    bind_sums(f, own, k);
    own.accumulate = round % each > 0;
    one_->forward(own);
    if (own.last_part) add_sums(f, k, true);
  }
  void clear_gradients(const Frame& f) const {
    for (const ParamSpec& spec : one_->params()) {
      if (f.sums(spec.key))
        f.kernels->fill_value({spec.shape.numel(), f.grad(spec.key).as<float>(), 0.0f}, f.launch);
    }
  }
  std::unique_ptr<Segment> one_;
  int count_;
  int levels_ = 1;
};

}  // namespace

void cut_into_pieces(Model& model, int pieces) {
  if (pieces == 1) return;
  for (Block& block : model.blocks) {
    block.wrap_segments([pieces](std::unique_ptr<Segment> segment) -> std::unique_ptr<Segment> {
      if (segment->joins_pieces()) return segment;
      return std::make_unique<Pieces>(std::move(segment), pieces);
    });
  }
}

}  // namespace lockstep::model
