// The other segments that the built-in families are made of.
#pragma once

#include <optional>

#include "lockstep/model/segments/linear.h"
#include "lockstep/model/segments/rope.h"

namespace lockstep::model {

// Site numbers key the dropout masks: one for each place where dropout happens in a model.
struct DropoutOptions {
  float rate = 0;
  uint32_t site = 0;
};
// Rows of `width` elements; every rank draws the mask that one rank would for the same tokens. y may be x.
// `cut`: where tensor ranks hold parts of each row, which of them these are.
void drop(const Frame& f, const DropoutOptions& options, DType type, int64_t width, const void* x, void* y,
          const Cut& cut = {});

// "attention": takes "qkv" (q and k already rotated), gives "context". Its gradient of qkv is handed
// over rotated back, when `rope` is given.
struct AttentionOptions {
  DType type = DType::f32;
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
  std::optional<RopeOptions> rope;
  Parts parts{};
  kernels::ScoreOptions scores{};
  bool documents = false;  // samples hold documents that do not see each other
};
// Pairs of a query and a key that it sees, in a sequence of so many tokens.
double attended_pairs(int64_t length, const kernels::ScoreOptions& scores);

void add_attention(std::vector<std::unique_ptr<Segment>>& segments, const AttentionOptions& options);
// The same where every context rank holds a front and a back run of each sequence, and keys and values go
// round.
std::unique_ptr<Segment> make_ring_attention(AttentionOptions options);
// The same where sequences are computed in pieces (batch.sequence_strands): first "split", which takes "qkv"
// and gives "q", "k" and "v".
std::unique_ptr<Segment> make_split(AttentionOptions options);
std::unique_ptr<Segment> make_sequence_attention(AttentionOptions options);

// "out" and "down": takes `input`, gives `output`, with dropout behind the map.
struct ProjectionOptions {
  std::string segment, input;
  // "hidden", which tensor ranks then add up, or a name for what another projection adds to its own output:
  // blocks whose attention and feed-forward part run side by side have one sum for both.
  std::string output = "hidden";
  std::string adds;      // such a name; empty: nothing is added
  std::string curve_of;  // an edge: what it takes is map.curve of that, and the gradient goes back there
  std::string name;      // canonical, without ".weight"
  LinearMap map;
  bool takes_amax = false;  // and TAKES_amax, where the map wants it: what gives `takes` knows it
  DropoutOptions dropout;
  float init_std = 0.02f;
  Parts parts{};  // tensor ranks hold parts of its inputs
};
std::unique_ptr<Segment> make_projection(ProjectionOptions options);

// "embed": reads tokens, gives "residual".
struct EmbeddingOptions {
  DType type = DType::f32;
  int64_t vocab = 0, width = 0;
  int64_t positions = 0;  // 0: no position table
  std::string token_name, position_name;
  DropoutOptions dropout;
  float init_std = 0.02f;
  Parts parts{};           // tensor ranks hold parts of the vocabulary
  double scale = 1;        // of what is looked up; in 16 bits it is rounded like everything
  bool documents = false;  // positions begin again at each document of a sample
};
std::unique_ptr<Segment> make_embedding(EmbeddingOptions options);

// "logits": takes "normed", computes the loss against labels. Products and softmax run over `chunk` rows
// at a time, so that only that many rows of logits exist. Where tensor ranks hold parts of the vocabulary,
// what each part says of these rows passes between the ranks in every round.
struct PairOptions {  // as in kernels::PreferenceLoss
  float beta = 0.1f, smoothing = 0;
};
struct HeadOptions {
  DType type = DType::f32;
  int64_t vocab = 0, width = 0, chunk = 0;
  std::string name;     // canonical
  std::string tied_to;  // or empty
  float init_std = 0.02f;
  std::optional<Fp8Products> fp8{};
  bool bias = false;
  float softcap = 0;                   // logits become cap * tanh(logit / cap); 0: they do not
  std::optional<PairOptions> pairs{};  // the loss is of pairs of samples
};
void add_head(std::vector<std::unique_ptr<Segment>>& segments, HeadOptions options, const Parts& parts);
void add_vocab_head(std::vector<std::unique_ptr<Segment>>& segments, HeadOptions options, const Parts& parts);
// What both heads share: the bias of the logits or null, the cap on the first `count` of them, and the
// product for `vocab` columns.
const void* bias_of(const HeadOptions& options, const Frame& f);
void cap_logits(const HeadOptions& options, const Frame& f, const Tensor& logits, int64_t count);
LinearMap logits_map(const HeadOptions& options, int64_t vocab);
// And where the loss is of pairs: what their rows' losses (scratch "losses") come to, and the weights of
// their rows' gradients (scratch "weights").
void add_pairs_to(SegmentPlan& plan, int64_t tokens);
void weigh_pairs(const PairOptions& pairs, const Frame& f);

// "classify": takes "hidden" as logits [samples, classes] and computes the loss against one label a sample.
struct ClassifyOptions {
  DType type = DType::f32;
  int64_t classes = 0;
};
std::unique_ptr<Segment> make_classify(ClassifyOptions options);

}  // namespace lockstep::model
