// The compiler's own state: what compile() fills while it writes the list. Internal to the folder.
//
// The list is written turn by turn, as the pipeline's schedule says; without a pipeline that is forward and
// backward, slice after slice. Every slice carries the buffers that its turns leave for each other.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "lockstep/model/layout.h"
#include "lockstep/program/compile.h"
#include "lockstep/program/owners.h"

namespace lockstep::program {

// Slices of a round without a strand have numbers of their own until the list is written: they are there so
// that this rank comes to the others' collectives, and what is only its own goes again (drop_idle).
constexpr int kIdle = -2;
inline bool idle(int slice) { return slice <= kIdle; }

class Compiler {
 public:
  Compiler(const model::Model& model, const Layout& layout);
  Program run();

 private:
  using Roles = std::map<std::string, int>;  // "in.hidden" to its buffer

  // What flows forward between segments, and what the seam behind its giver does to it.
  struct Edge {
    int buffer = -1;
    bool gradient = true;
    model::Seam seam = model::Seam::none;
    bool read = false;             // by anybody yet
    int block = -1, segment = -1;  // that gave it
    Buffer given;                  // as it was before the seam
  };

  struct Slice {
    int number = 0;                    // in the batch; idle() in rounds without a strand
    size_t strand = 0;                 // the n-th of this rank
    bool first = false, last = false;  // of its strand
    Roles batch;
    // By chunk: what flows forward and backward between its blocks, and what the next stage was sent.
    struct Flow {
      std::map<std::string, Edge> edges, sent;
      Roles dedges;
    };
    std::vector<Flow> flows;
    int chunk = 0;  // at work
    Flow& flow() { return flows[static_cast<size_t>(chunk)]; }
    std::vector<std::vector<Roles>> seen;  // [block][segment]: what its forward saw and made
    // [block][segment]: edges that come first to it and have a seam behind their giver
    std::map<std::pair<size_t, size_t>, std::map<std::string, Edge>> first_readers;
  };

  struct Strand {
    int64_t number = 0;  // -1: a round without one
    int level = 0, joins = 0;
    bool onto = false;  // added to the partial sum at this level as it is computed, which is its first join
  };

  // Of a segment's backward pass: which parts have work (frozen parameters have no gradient, and nothing
  // flows back to where nothing is trained). Of a turn: which parts it does.
  struct Backward {
    bool input = true, weight = true;
    bool any() const { return input || weight; }
  };

  // --- compile.cc: what lives across steps, and the order of turns
  void deal_strands();
  void add_persistent();
  void add_block(size_t b, int levels, int64_t chunks);
  void add_state(size_t b);
  void find_backward();
  void find_merging();
  Strand strand_of(size_t b, const Strand& strand) const;
  int gradient_levels(size_t b) const;
  void begin_step();
  std::vector<std::vector<Turn>> when_to_receive(const std::vector<Turn>& order) const;
  void take_turn(const Turn& turn);
  int persistent(std::string name, BufferKind kind, device::DType type, device::Shape shape, int block);
  bool mine(size_t block) const;
  Piece piece(int chunk) const { return layout_.stages.piece(chunk, static_cast<int>(model_.blocks.size())); }

  // --- compile_slice.cc: one slice through the blocks of one chunk
  void forward_turn(Slice& s, int chunk);
  void backward_turn(Slice& s, int chunk, Backward work);
  void load(Slice& s, int chunk);
  bool reads_field(const char* field) const;
  void forward(size_t b, size_t g, Slice& s);
  void take_values(Instruction& i, size_t b, size_t g, Slice& s);
  void give_values(Instruction& i, size_t b, size_t g, Slice& s);
  void add_loss(Instruction& i, size_t b, size_t g, Slice& s);
  int gradient_like(int edge, const std::string& name, const Instruction& i, const model::SegmentPlan& plan);
  void backward_input(size_t b, size_t g, Slice& s);
  void backward_weight(size_t b, size_t g, Slice& s);
  void seams_backward(Slice& s, size_t b, size_t g);
  void take_gradients(size_t b, size_t g, Slice& s);
  void give_gradients(Instruction& i, size_t b, size_t g, Slice& s);
  int value(const model::ValueSpec& spec, BufferKind kind, int block, int slice);
  void prepare(size_t b, size_t g, const Slice& s, model::Part part);
  void add_prepared(Instruction& i, size_t b, size_t g, model::Part part);
  void add_weights(Instruction& i, size_t b, size_t g);
  void add_statistics(Instruction& i, size_t b, size_t g, int slice);
  bool add_gradients(Instruction& i, size_t b, size_t g, const Slice& s);
  static void add_may_reuse(Instruction& i, const model::SegmentPlan& plan, const Roles& seen);
  void add_scratch(Instruction& i, const model::SegmentPlan& plan, model::Part part, int block, int slice);
  void add_cost(Instruction& i, size_t b, size_t g, model::Part part);
  int64_t own_part(size_t b, int64_t bytes) const;
  int gradient_at(size_t b, const Slice& s);
  void close_strand(size_t b, const Slice& s);
  void sum_partials(size_t b, const Slice& s);
  void sum_pieces(size_t b, const Slice& s);

  // --- compile_seams.cc: between segments and parts
  void seam_forward(Slice& s, size_t b, size_t g, const std::string& name, model::Seam seam);
  int seam_backward(Slice& s, const Edge& edge, int gradient);
  int cross(model::Seam seam, int buffer, int block, int segment, int slice);
  int addend_staging(int64_t bytes, Among among);
  void ring_forward(Slice& s, size_t b, size_t g, Instruction whole);
  void ring_backward(Slice& s, size_t b, size_t g, Instruction whole);
  void loss_in_rounds(size_t b, size_t g, const Instruction& whole);
  int shift(const Instruction& near, int buffer, bool forward);
  Instruction seam_instruction(Operation what, Among among, int block, int segment, int slice) const;
  void find_flows();

  // --- compile_stages.cc: between pipeline stages
  std::string shares_gradient(int block, const std::string& name) const;
  std::string adds_to(int block, const std::string& name) const;
  int add_edges(int a, int b, const Instruction& send);
  int zeros_like(const model::ValueSpec& spec);
  bool wanted(int block, const std::string& name) const;
  void receive(const Turn& turn);
  void send_edges(Slice& s, int chunk);
  void receive_edges(Slice& s, int chunk);
  void send_gradients(Slice& s, int chunk);
  void receive_gradients(Slice& s, int chunk);
  void cross_back(Slice& s);

  // --- compile_finish.cc: the end of the step
  void finish_step();
  void update(size_t b, size_t region);
  Instruction exchange_with_owners(size_t b, size_t region, Operation what);
  std::vector<Owned> owned_in(size_t b, size_t region) const;
  void add_tied(size_t b, int param_index, const model::PlacedParam& param);
  void share_tied();
  void hand_over(const model::PlacedParam& user, int owner);
  void fold_statistics(size_t b, size_t g, const std::vector<Use>& kept);

  // Buffers of the whole program that live across steps.
  struct Persistent {
    std::map<std::string, int> tables;  // tables and statistics, shared by name
    int state = -1, inputs = -1, slice_losses = -1, square_sums = -1;
  };

  const model::Model& model_;
  const Layout& layout_;
  std::vector<model::BlockLayout> layouts_;
  std::vector<std::vector<model::SegmentPlan>> plans_;
  Program program_;
  Persistent keep_;
  std::vector<Strand> strands_;
  std::vector<bool> merges_;  // [block]: its strands are added to their neighbours' sums as they are computed
  std::vector<Slice> slices_;
  std::map<std::pair<size_t, size_t>, std::vector<Use>> statistics_;  // {block, segment}: of every slice
  std::map<std::pair<size_t, size_t>, Roles> prepared_;  // {block, segment}: what is made of its weights
  std::set<std::tuple<size_t, size_t, std::string>>
      without_gradient_;                         // {block, segment, edge that it takes}
  std::vector<std::vector<Backward>> backward_;  // [block][segment]
  std::set<std::tuple<size_t, size_t, std::string>>
      unread_;  // {block, segment, edge}: nobody below reads din
  std::vector<std::map<std::string, bool>>
      wanted_;  // of what flows into each block: somebody reads its gradient
  std::map<std::pair<size_t, size_t>, int>
      round_;  // {block, strand}: its gradient, where strands are dealt round-robin
  std::vector<std::map<std::string, model::ValueSpec>> flows_;  // what flows into each block
  std::map<std::string, int> zeros_;                            // for edges that came as part of another one
  // What each part of a segment costs, asked once for all slices.
  std::map<std::tuple<size_t, size_t, model::Part>, std::shared_ptr<const model::Cost>> costs_;
};

}  // namespace lockstep::program
