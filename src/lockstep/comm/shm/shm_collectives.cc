// The collectives of the shared-memory engine: two barriers per call, one for small ones, two per piece for
// what is staged.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "lockstep/base/round.h"
#include "lockstep/comm/rank_sum.h"
#include "lockstep/comm/shm/shm_group.h"

namespace lockstep::comm {
namespace {

constexpr int64_t kShareBytes =
    1024;  // shares begin at multiples of it: ranks do not write to the same cache line

void copy_bytes(void* to, const void* from, int64_t bytes) {
  if (bytes > 0 && to != from) std::memmove(to, from, static_cast<size_t>(bytes));
}

int64_t detail_of(device::DType type) { return static_cast<int64_t>(type); }

}  // namespace

void ShmGroup::do_barrier() { announce({Collective::barrier}, {}); }

void ShmGroup::pull(int64_t entry, const std::vector<Tensor>& into, const std::vector<Tensor>& sources) {
  const int64_t last = rounds() - 1;
  for (int64_t round = 0;; ++round) {
    for (int step = 1; step < size(); ++step) {  // everyone begins with another peer
      const int q = (rank() + step) % size();
      const Post& post = post_of(q);
      if (post.entry_count == 0 || (post.form != PostForm::in_pieces && round > 0)) continue;
      const PostEntry place = post.entries[entry];
      const Tensor& to = into[static_cast<size_t>(q)];
      if (entry >= post.entry_count || place.bytes != to.bytes()) {
        throw CallFailed{fmt::format("rank {} sends {} bytes, but this rank expects {}",
                                     board_->world_rank(q), place.bytes, to.bytes())};
      }
      if (post.form != PostForm::in_pieces) {
        copy_bytes(to.data, locate(q, entry), place.bytes);
        continue;
      }
      const int64_t begin = round * kBounceBytes;
      const int64_t from = std::max(begin, place.offset);
      const int64_t end = std::min(begin + kBounceBytes, place.offset + place.bytes);
      if (from < end) {
        copy_bytes(to.as<std::byte>() + (from - place.offset),
                   board_->pages(q).bounce[round & 1] + (from - begin), end - from);
      }
    }
    if (round == last) break;
    if (post_of(rank()).form == PostForm::in_pieces) stage(sources, round + 1);
    board_->barrier();
  }
  if (someone(PostForm::in_arena) || someone(PostForm::in_pieces)) board_->barrier();
}

void ShmGroup::do_all_gather(const std::vector<Tensor>& parts, Stream) {
  int64_t bytes = 0;
  for (const Tensor& part : parts) bytes += part.bytes();
  const std::vector<Tensor> mine{parts[static_cast<size_t>(rank())]};
  announce({Collective::all_gather, bytes}, mine);
  pull(0, parts, mine);
}

void ShmGroup::do_all_to_all(const std::vector<Tensor>& send, const std::vector<Tensor>& recv, Stream) {
  announce({Collective::all_to_all}, send);
  const auto self = static_cast<size_t>(rank());
  pull(rank(), recv, send);
  copy_bytes(recv[self].data, send[self].data, send[self].bytes());
}

void ShmGroup::do_broadcast(const Tensor& values, int root, Stream) {
  std::vector<Tensor> sources;
  if (rank() == root) sources.push_back(values);
  announce({Collective::broadcast, values.bytes(), root}, sources);
  pull(0, std::vector<Tensor>(static_cast<size_t>(size()), values), sources);
}

void ShmGroup::do_reduce_scatter(const std::vector<Tensor>& parts, const Tensor& mine, Stream) {
  int64_t bytes = 0, begin = 0;
  for (size_t q = 0; q < parts.size(); ++q) {
    if (static_cast<int>(q) == rank()) begin = bytes;
    bytes += parts[q].bytes();
  }
  announce({Collective::reduce_scatter, bytes, detail_of(mine.dtype)}, parts);
  const bool pieces = someone(PostForm::in_pieces);
  const int64_t last = rounds() - 1, element = device::size_of(mine.dtype);
  std::vector<const void*> from(static_cast<size_t>(size()));
  for (int64_t round = 0;; ++round) {
    const int64_t piece = round * kBounceBytes;
    const int64_t low = pieces ? std::max(begin, piece) : begin;
    const int64_t high = pieces ? std::min(begin + mine.bytes(), piece + kBounceBytes) : begin + mine.bytes();
    if (low < high) {
      for (int q = 0; q < size(); ++q) {
        const Post& post = post_of(q);
        if (post.entries[rank()].bytes != mine.bytes()) {
          throw CallFailed{fmt::format("rank {} divides its buffer differently", board_->world_rank(q))};
        }
        const std::byte* data = q == rank() ? parts[static_cast<size_t>(q)].as<std::byte>() + (low - begin)
                                : post.form == PostForm::in_pieces
                                    ? board_->pages(q).bounce[round & 1] + (low - piece)
                                    : locate(q, rank()) + (low - begin);
        from[static_cast<size_t>(q)] = data;
      }
      void* to = mine.as<std::byte>() + (low - begin);
      sum_ranks(mine.dtype, from.data(), size(), &to, 1, (high - low) / element);
    }
    if (round == last) break;
    if (post_of(rank()).form == PostForm::in_pieces) stage(parts, round + 1);
    board_->barrier();
  }
  if (someone(PostForm::in_arena) || pieces) board_->barrier();
}

void ShmGroup::do_all_reduce(const Tensor& values, Stream) {
  const std::vector<Tensor> sources{values};
  announce({Collective::all_reduce, values.bytes(), detail_of(values.dtype)}, sources);
  if (post_of(rank()).form == PostForm::inside) return all_reduce_inside(values);
  const bool pieces = someone(PostForm::in_pieces);
  const bool own_pieces = post_of(rank()).form == PostForm::in_pieces;
  const int64_t last = rounds() - 1;
  std::vector<std::byte*> where(static_cast<size_t>(size()));
  for (int64_t round = 0;; ++round) {
    const int64_t begin = pieces ? round * kBounceBytes : 0;
    const int64_t bytes = pieces ? std::min(kBounceBytes, values.bytes() - begin) : values.bytes();
    for (int q = 0; q < size(); ++q) {
      where[static_cast<size_t>(q)] = post_of(q).form == PostForm::in_pieces
                                          ? board_->pages(q).bounce[round & 1]
                                      : q == rank() ? values.as<std::byte>() + begin
                                                    : locate(q, 0) + begin;
    }
    sum_share(values.dtype, where, bytes);
    board_->barrier();
    if (own_pieces) copy_bytes(values.as<std::byte>() + begin, where[static_cast<size_t>(rank())], bytes);
    if (round == last) break;
    if (own_pieces) stage(sources, round + 1);
    board_->barrier();
  }
}

void ShmGroup::all_reduce_inside(const Tensor& values) {
  std::vector<const void*> from;
  for (int q = 0; q < size(); ++q) from.push_back(locate(q, 0));
  void* to = values.data;
  sum_ranks(values.dtype, from.data(), size(), &to, 1, values.numel());
}

void ShmGroup::sum_share(device::DType type, const std::vector<std::byte*>& where, int64_t bytes) {
  const int64_t blocks = base::divide_up(bytes, kShareBytes);
  const int64_t begin = std::min(bytes, blocks * rank() / size() * kShareBytes);
  const int64_t end = std::min(bytes, blocks * (rank() + 1) / size() * kShareBytes);
  std::vector<const void*> from;
  std::vector<void*> to;
  for (std::byte* data : where) {
    from.push_back(data + begin);
    to.push_back(data + begin);
  }
  sum_ranks(type, from.data(), size(), to.data(), size(), (end - begin) / device::size_of(type));
}

}  // namespace lockstep::comm
