// Send, recv and borrow: what the shared-memory engine does between two ranks, or without copying at all.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "lockstep/base/round.h"
#include "lockstep/comm/shm/shm_group.h"

namespace lockstep::comm {

// The receiver reads where the sender's tensor lies; the sender waits until it has. Memory outside the arena
// passes through the sender's two bounce buffers in turn.
void ShmGroup::do_send(const Tensor& values, int to, Stream) {
  Channel& channel = board_->channel(rank(), to);
  const int64_t bytes = values.bytes();
  const auto offset = arena_->offset_of(values.data, bytes);
  const bool pieces = bytes > 0 && !offset;
  channel.form = pieces ? PostForm::in_pieces : PostForm::in_arena;
  channel.offset = offset.value_or(0);
  channel.bytes = bytes;
  board_->begin();
  uint32_t offered = channel.offered.value.load(std::memory_order_relaxed);
  const int64_t rounds = pieces ? base::divide_up(bytes, kBounceBytes) : 1;
  for (int64_t round = 0; round < rounds; ++round) {
    if (round >= 2) board_->wait_for(channel.taken, offered - 1, to);  // the buffer's last content is out
    if (pieces) stage({values}, round);
    channel.offered.raise();
    ++offered;
  }
  board_->wait_for(channel.taken, offered, to);
}

void ShmGroup::do_recv(const Tensor& values, int from, Stream) {
  Channel& channel = board_->channel(from, rank());
  board_->begin();
  uint32_t taken = channel.taken.value.load(std::memory_order_relaxed);
  board_->wait_for(channel.offered, taken + 1, from);
  if (channel.bytes != values.bytes()) {
    throw CallFailed{fmt::format("rank {} sends {} bytes, but this rank expects {}", board_->world_rank(from),
                                 channel.bytes, values.bytes())};
  }
  if (channel.form == PostForm::in_arena) {
    if (channel.bytes > 0) {
      std::memcpy(values.data, peers_[static_cast<size_t>(from)]->at(channel.offset, channel.bytes),
                  static_cast<size_t>(channel.bytes));
    }
    return channel.taken.raise();
  }
  int64_t round = 0;
  for (int64_t begin = 0; begin < values.bytes(); begin += kBounceBytes, ++round) {
    board_->wait_for(channel.offered, ++taken, from);
    std::memcpy(values.as<std::byte>() + begin, board_->pages(from).bounce[round & 1],
                static_cast<size_t>(std::min(kBounceBytes, values.bytes() - begin)));
    channel.taken.raise();
  }
}

std::vector<std::vector<Tensor>> ShmGroup::do_borrow(const std::vector<std::vector<Tensor>>& offers,
                                                     const std::vector<std::vector<Tensor>>& expected,
                                                     const Tensor&, Stream) {
  std::vector<Tensor> flat;  // for rank 0, for rank 1, ...
  for (const std::vector<Tensor>& offer : offers) flat.insert(flat.end(), offer.begin(), offer.end());
  announce_in_arena({Collective::borrow}, flat);
  std::vector<std::vector<Tensor>> views = expected;
  for (int q = 0; q < size(); ++q) {
    const auto count = static_cast<int64_t>(expected[static_cast<size_t>(q)].size());
    for (int64_t i = 0; i < count; ++i) {
      Tensor& view = views[static_cast<size_t>(q)][static_cast<size_t>(i)];
      const int64_t entry = rank() * count + i;
      if (q == rank()) {
        view = flat[static_cast<size_t>(entry)];
        continue;
      }
      view.data = locate(q, entry);
      if (post_of(q).entries[entry].bytes != view.bytes()) {
        throw CallFailed{fmt::format("rank {} lends {} bytes, but this rank expects {}",
                                     board_->world_rank(q), post_of(q).entries[entry].bytes, view.bytes())};
      }
    }
  }
  return views;
}

void ShmGroup::announce_in_arena(const Call& call, const std::vector<Tensor>& sources) {
  std::vector<Tensor> moved = sources;
  for (Tensor& source : moved) {
    if (source.bytes() == 0 || arena_->offset_of(source.data, source.bytes())) continue;
    void* copy = arena_->allocate(source.bytes());
    lent_.push_back(copy);
    source.data = std::memcpy(copy, source.data, static_cast<size_t>(source.bytes()));
  }
  announce(call, moved, PostForm::in_arena);
}

void ShmGroup::do_give_back(Stream) {
  announce({Collective::give_back}, {});
  for (void* memory : lent_) arena_->free(memory);
  lent_.clear();
}

}  // namespace lockstep::comm
