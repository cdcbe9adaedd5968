// The shared-memory engine: ranks read each other's tensors where they lie.
//
// A call posts where this rank's data is, waits for the others, and works on their memory directly; a second
// barrier makes sure that everybody has finished before anybody may change its own again. Small calls carry
// their data inside the post and need one barrier only. See docs/collectives.md for bytes and steps.
#pragma once

#include <optional>

#include "lockstep/comm/engines.h"
#include "lockstep/comm/shm/shm_arena.h"
#include "lockstep/comm/shm/shm_board.h"

namespace lockstep::comm {

class ShmGroup final : public Group {
 public:
  // `own_arena` is for groups that were given none.
  ShmGroup(std::string name, std::unique_ptr<Board> board, ShmArena* arena,
           std::unique_ptr<ShmArena> own_arena);
  ~ShmGroup() override;
  int64_t staging_bytes(const std::vector<std::vector<Tensor>>&) const override { return 0; }

 protected:
  void do_all_reduce(const Tensor& values, Stream) override;
  void do_reduce_scatter(const std::vector<Tensor>& parts, const Tensor& mine, Stream) override;
  void do_all_gather(const std::vector<Tensor>& parts, Stream) override;
  void do_all_to_all(const std::vector<Tensor>& send, const std::vector<Tensor>& recv, Stream) override;
  void do_broadcast(const Tensor& values, int root, Stream) override;
  void do_send(const Tensor& values, int to, Stream) override;
  void do_recv(const Tensor& values, int from, Stream) override;
  void do_barrier() override;
  std::vector<std::vector<Tensor>> do_borrow(const std::vector<std::vector<Tensor>>& offers,
                                             const std::vector<std::vector<Tensor>>& expected, const Tensor&,
                                             Stream) override;
  void do_give_back(Stream) override;

 private:
  // What all members must say alike.
  struct Call {
    Collective kind;
    int64_t bytes = 0, detail = 0;
  };
  // Posts `sources`, the first piece of them included, waits for everyone and compares calls.
  void announce(const Call& call, const std::vector<Tensor>& sources,
                std::optional<PostForm> form = std::nullopt);
  void announce_in_arena(const Call& call, const std::vector<Tensor>& sources);
  void compare(const Call& call) const;
  const Post& post_of(int q) const { return board_->pages(q).posts[turn_]; }
  bool someone(PostForm form) const;
  int64_t rounds() const;  // barriers until every stream has passed through its bounce buffers
  void stage(const std::vector<Tensor>& sources, int64_t round);
  // Entry `entry` of q's post as this process sees it. Not for pieces.
  std::byte* locate(int q, int64_t entry) const;
  // Fills into[q] from entry `entry` of each q that has one; `sources` are our own, for further pieces.
  void pull(int64_t entry, const std::vector<Tensor>& into, const std::vector<Tensor>& sources);

  void all_reduce_inside(const Tensor& values);
  // The bytes [begin, end) of the tensor, which stand at `where[q]`: this rank's shard is summed and given to
  // all.
  void sum_share(device::DType type, const std::vector<std::byte*>& where, int64_t bytes);

  std::unique_ptr<ShmArena> own_arena_;
  ShmArena* arena_;
  std::unique_ptr<Board> board_;
  std::vector<PeerArena*> peers_;
  std::vector<void*> lent_;  // arena copies of offers that were not in the arena
  int turn_ = 0;
  int64_t calls_ = 0;
};

}  // namespace lockstep::comm
