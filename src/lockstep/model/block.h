// Blocks and segments: what a model is made of.
//
// A model is a sequence of blocks (embedding, layers, head); a block is the unit of sharding,
// recomputation, pipelining and pricing. A block is a sequence of segments, each with a forward, a
// backward_input (what the previous segment waits for) and a backward_weight (which may run later).
// Between segments flow named *edges*: "residual", "hidden", "qkv". A segment declares in its plan every
// value that it reads, writes and keeps; the compiler turns plans into instructions and buffers, so the
// peak memory is known before anything runs, and a segment can touch nothing that it did not declare.
// No segment ever communicates: where a layout needs a collective, the compiler puts it at the seam.
//
//     class Scale : public Segment {                          // y = w * x
//       SegmentPlan plan(const SliceShape& s, const kernels::Kernels&) const override {
//         return {.takes = {"hidden"}, .gives = {{"hidden", type_, {s.tokens(), width_}}}, ...};
//       }
//       void forward(const Frame& f) const override { ... f.in("hidden"), f.weight("w"), f.out("hidden") ...
//       }
//     };
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/device/tensor.h"
#include "lockstep/kernels/table.h"
#include "lockstep/model/cut.h"
#include "lockstep/model/frame.h"

namespace lockstep::model {

using device::DType;
using device::Shape;
using device::Tensor;

// One slice: one forward and backward of constant shape.
struct SliceShape {
  int64_t samples = 1, seq_len = 1;
  int64_t tokens() const { return samples * seq_len; }
};

struct Init {
  enum class Kind : uint8_t { zeros, ones, normal, uniform, given } kind = Kind::zeros;
  float deviation = 0;            // uniform: values lie between minus this and this
  const float* values = nullptr;  // given: one for each element, kept by the segment
};

// How a run trains a parameter. A model as it is built trains all alike; Block::treat says otherwise.
struct Treatment {
  bool frozen = false;                     // no gradient and no state: only the values that products read
  float rate = 1;                          // times the learning rate
  std::optional<float> weight_decay = {};  // instead of what the optimizer gives to all
  int rule = 0;                            // which of the run's update rules
  bool whole = false;  // that rule must see it whole: it is never cut among the ranks of a shard group
  kernels::Quantized format = kernels::Quantized::none;  // frozen: kept so, and dequantized where it is read
  bool operator==(const Treatment&) const = default;
};

struct ParamSpec {
  std::string key;   // what the segment calls it: "weight"
  std::string name;  // the canonical name: Hugging Face's for known families
  Shape shape;       // of what this rank holds
  Init init;
  bool decay = true;     // weight decay applies (matrices); norms and biases get none
  Cut cut;               // how tensor parallelism cuts it: over outputs, inputs or vocabulary, or not at all
  bool partial = false;  // not cut, but each tensor rank's gradient is of its own tokens only: to be added up
  bool joined = false;   // starts where the previous parameter ends, so that one product reads both
  std::string tied_to;   // shares the values of this canonical name; its gradient has a slot of its own
  bool table = false;    // a row a token or position (embeddings, heads): no matrix that hidden values pass
  bool adapter = false;  // added to a map whose own weight stays as it was (model/adapters.h)
  Treatment train = {};
  bool holds_values() const { return tied_to.empty(); }
  bool trained() const { return tied_to.empty() && !train.frozen; }
};

// A value that is not trained: tables, running statistics.
struct BufferSpec {
  std::string key, name;
  DType dtype = DType::f32;
  Shape shape;
  bool constant = true;    // false: a statistic that slices change, folded in slice order at the step's end
  bool by_length = false;  // sequences of another length need another table
};

struct ValueSpec {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
  bool external = false;  // counted, but held by LibTorch and not placed in the arena (AutogradBlock)
  bool gradient = true;   // an edge: one flows back
  int64_t bytes() const { return shape.numel() * device::size_of(dtype); }
};

// A value of forward ("save.x", "out.x") that backward_input can make again on its way, bit for bit.
struct Remake {
  std::string value;
  int64_t moved_bytes = 0;  // what that costs
};

enum class Part : uint8_t { forward, backward_input, backward_weight };

// What happens to an edge behind the segment that gives it, where ranks share its products or its tokens. The
// compiler puts the collective there, and its counterpart into the backward pass.
enum class Seam : uint8_t {
  none,
  sum,             // tensor ranks hold addends: added up. Backward: nothing
  spread,          // nothing; but their gradients are addends. Backward: added up
  gather_tokens,   // tensor ranks hold rows: put together. Backward: added up and dealt out
  scatter_tokens,  // addends of all rows: added up and dealt out. Backward: put together
  sum_both,        // addends, whose sum each rank uses its own way: added up. Backward: added up too
  to_heads,        // context ranks hold all heads of some tokens: now all tokens of some heads
  to_tokens,       // and back
  gather_pieces,   // context ranks hold rows: put together. Backward: added up over a tree and dealt out
  scatter_pieces,  // its counterpart
};

// A segment that runs in parts while a value goes round the context ranks. Part 0 makes what travels; part k
// works on what rank - (k - 1) made. The backward pass runs the parts in reverse: the value goes back round,
// and its gradient with it.
struct Ring {
  int parts = 0;                     // as many as there are context ranks, and part 0
  std::vector<ValueSpec> travels;    // "ring.NAME"
  std::vector<ValueSpec> gradients;  // "ringgrad.NAME": of what travels
  std::vector<ValueSpec> across;     // "across.NAME": lives from part 1 to the last
  std::vector<ValueSpec> back;       // "across.NAME" of the backward pass
};

struct SegmentPlan {
  std::vector<std::string> inputs;  // edges it consumes; backward_input writes their gradients
  std::vector<std::string> passes;  // edges it reads and leaves as they are; it adds to their gradient
  std::vector<ValueSpec> outputs;   // edges it writes
  std::vector<ValueSpec> saves;     // further values that forward leaves for the backward pass
  std::vector<ValueSpec> leaves;    // what backward_input leaves for backward_weight
  std::vector<std::string> wide_gradients;  // of `inputs`: backward_input writes their gradients in fp32
  std::vector<std::string> batch;           // of the batch: "inputs", "labels", "documents", "references"
  // Values of forward ("in.x", "out.x", "save.x") and gradients ("dout.x") that the backward parts read;
  // backward_weight may read "left.x" too.
  std::vector<std::string> input_needs, weight_needs;
  // {"din.hidden", "din.residual"}: one buffer under two names. Of two edges that it takes: it adds them,
  // rounded, and reads nothing but their sum.
  std::vector<std::pair<std::string, std::string>> same;
  // {"din.residual", "dout.residual"}: the first may take over the memory of the second, if nobody else
  // reads that any more.
  std::vector<std::pair<std::string, std::string>> may_reuse;
  // Where only weights' gradients need these any more, they may be dropped and made again (Frame::again):
  // cheap things that take much memory, never products.
  std::vector<Remake> remakes;
  std::vector<std::pair<Part, ValueSpec>> scratch;  // values that live only while that part runs
  // What prepare() makes of the weights, once a step, and which part reads it: forward or backward_input.
  std::vector<std::pair<Part, ValueSpec>> prepares;
  int64_t workspace = 0;  // the largest scratch that a kernel of any part asks for, in bytes
  bool loss = false;      // forward computes the slice's loss and, in training, din of what it
                          // takes and the gradients of its weights: it has no backward of its own
  std::vector<std::pair<std::string, Seam>> seams;  // of edges that it gives
  std::optional<Ring> ring;
  // loss: it runs in rounds of two parts. The first part of round k gives rounds[k], every tensor rank's is
  // put one behind the other, and the second part takes that under the same name. Scratch lives through all
  // rounds.
  std::vector<ValueSpec> rounds;
};

// What a part costs: matrix products, attention, and the bytes that everything else must move.
struct Cost {
  struct Product {
    int64_t m, n, k;
    bool fp8 = false;
    bool of_weight = false;  // the gradient of the segment's "weight": left out where that is frozen
  };
  std::vector<Product> products;
  double attention_flops = 0;
  int64_t attention_length = 0, attention_head = 0;  // tokens that a query may see at most, width of a head
  int64_t bytes = 0;
  double flops() const;
  double fp8_flops() const;  // those of them that are fp8
};
Cost sum(Cost a, const Cost& b);

// What is added to linear maps so that they learn while their own weights stay as they are (LoRA):
// y = x W + scale * drop(x) A B, with A and B of `rank` columns and rows.
struct AdapterOptions {
  int64_t rank = 8;
  float scale = 2;
  float dropout = 0;
  std::vector<std::string> targets = {};  // names or patterns of maps; empty: all
  bool wants(const std::string& map) const;
};

class Segment {
 public:
  virtual ~Segment() = default;
  virtual std::string name() const = 0;  // "qkv", "attention", "out", "up", "down"
  virtual std::vector<ParamSpec> params() const { return {}; }
  virtual std::vector<BufferSpec> buffers() const { return {}; }
  // `kernels` only tells how much scratch its operations want.
  virtual SegmentPlan plan(const SliceShape& shape, const kernels::Kernels& kernels) const = 0;
  virtual void prepare(const Frame&) const {}  // writes what the plan's `prepares` names
  virtual void forward(const Frame& frame) const = 0;
  virtual void backward_input(const Frame& frame) const = 0;
  virtual void backward_weight(const Frame&) const {}
  virtual Cost cost(const SliceShape& shape, Part part) const = 0;
  // Linear maps that may have adapters: canonical names, without ".weight". adapt() adds them to those that
  // are wanted; before anything else is asked of the segment.
  virtual std::vector<std::string> adaptable() const { return {}; }
  virtual void adapt(const AdapterOptions&) {}
  // Columns of what it gives that lie side by side and are dealt out each for itself, where ranks exchange
  // tokens for heads; empty: they are one group.
  virtual std::vector<int64_t> column_groups() const { return {}; }
  // What the bits of this segment rest on beyond the build and the device: "attention cudnn 9.19.0".
  virtual std::string numerics(const SliceShape&, const kernels::Kernels&) const { return ""; }
  // Whether a slice of this shape adds to each gradient once, by one kernel, and not in chunks or rounds.
  // Where the kernels do so too (Kernels::adds_own_sums), a strand of one slice needs no gradients of its
  // own.
  virtual bool adds_gradients_once(const SliceShape&) const { return false; }
  // Whether it works on whole sequences, not on each of their pieces alone (batch.sequence_strands).
  virtual bool joins_pieces() const { return false; }
  // Whether all that it does goes to the stream it is handed, so that a step may become a CUDA graph.
  virtual bool can_be_captured() const { return true; }
  // New tokens of texts whose keys and values are cached (SliceContext::slots), as many as the plan has rows
  // or fewer; only attention, which looks back, and the head differ from forward.
  virtual void decode(const Frame& frame) const { forward(frame); }
  // Fills buffers once, before the first step; `tables` in the order of buffers(), host memory. `length`: of
  // the sequences to come, for those that depend on it.
  virtual void fill_buffers(const std::vector<Tensor>&, int64_t /*length*/) const {}
  // Statistics (buffers that are not constant), once at the step's end: from what the step began with
  // (frame.buffer) and what each slice made of that (frame.statistic(key, slice)) to what the next step
  // begins with.
  virtual void fold_statistics(const Frame&) const {}
};

class Block {
 public:
  Block(std::string name, std::vector<std::unique_ptr<Segment>> segments);
  const std::string& name() const { return name_; }
  const std::vector<std::unique_ptr<Segment>>& segments() const { return segments_; }
  // Puts what `wrap` makes of it in the place of each segment; before anything else is asked of the block.
  void wrap_segments(const std::function<std::unique_ptr<Segment>(std::unique_ptr<Segment>)>& wrap);
  std::vector<ParamSpec> params() const;                   // keys with the segment's name: "qkv.weight"
  std::vector<ParamSpec> params_of(size_t segment) const;  // keys as the segment has them
  // Of the parameter of this canonical name; those that are tied to it are treated by their own names.
  void treat(const std::string& name, const Treatment& treatment);
  int64_t param_count() const;  // tied ones not counted
  int64_t trained_count() const;
  Cost cost(const SliceShape& shape, Part part) const;
  Cost cost_of(size_t segment, const SliceShape& shape, Part part) const;  // without what is frozen

 private:
  std::string name_;
  std::vector<std::unique_ptr<Segment>> segments_;
  std::map<std::string, Treatment> treatments_;  // by canonical name, where it is not the plain one
};
Block block_of(std::string name, std::unique_ptr<Segment> segment);  // of one segment

// Which part of a layer's products and of its sequences a rank works on.
struct Parts {
  int tensor = 1, tensor_rank = 0;
  // Where the numeric contract fixes into how many pieces every product is cut that tensor ranks may share
  // (batch.product_strands): a power of two, and each rank has as many of them as any other.
  int product_strands = 1;
  bool fixes_products() const { return product_strands > 1; }
  bool cuts_products() const { return tensor > 1 || fixes_products(); }
  int strands_here() const { return product_strands / tensor; }  // only with fixes_products()
  int product_parts() const { return fixes_products() ? product_strands : tensor; }  // of a cut product
  bool sequence = false;  // norms and residuals are split over tokens among the tensor ranks
  int context = 1, context_rank = 0;
  bool heads = false;  // context ranks exchange tokens for heads; false: keys and values go round in a ring
  // Where the numeric contract fixes into how many pieces every sequence is cut (batch.sequence_strands): a
  // power of two, and each context rank has as many of them as any other (model/segments/pieces.h).
  int sequence_strands = 1;
  bool fixes_sequences() const { return sequence_strands > 1; }
  int pieces_here() const { return sequence_strands / context; }
  int first_piece() const { return context_rank * pieces_here(); }
  // Whether "qkv" as a whole is exchanged, and attention gives what must be exchanged back.
  bool exchanges_qkv() const { return context > 1 && heads && !fixes_sequences(); }
};

struct Model {
  std::string family;
  DType compute = DType::f32;  // of edges and of the weights that products read
  Parts parts{};
  std::vector<Block> blocks;
  int64_t vocab = 0, context = 0, hidden = 0, layers = 0;
  int64_t seq_len = 0;  // of the sequences that it is built for
  bool predicts_tokens =
      true;  // language model: metrics count tokens, `generate` works; else they count samples
  bool documents =
      false;  // the batch says where documents begin in its samples, and segments keep them apart
  // Samples come in pairs, the preferred one first (tune.loss = dpo). The batch has "references", a double
  // for each sample, and the loss leaves each sample's log-probability.
  bool pairs = false;
  int64_t input_words = 0, label_words = 0;  // 32-bit words of one sample in the batch; 0: data.seq_len
  int64_t param_count() const;
  int64_t trained_count() const;  // without those that are frozen
  bool can_be_captured() const;   // as every one of its segments
  // Model FLOPs of one token, forward and backward: 6 x parameters in products + 12 x layers x hidden x
  // context (the nanoGPT formula), where 4 x counts for frozen ones, whose gradient nobody computes, and a
  // third for blocks below all that is trained; MFU is stated in it.
  double flops_per_token(int64_t seq_len) const;
};

}  // namespace lockstep::model
