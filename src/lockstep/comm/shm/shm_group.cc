#include "lockstep/comm/shm/shm_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/base/round.h"
#include "lockstep/comm/store/store_timeout.h"

namespace lockstep::comm {
namespace {

constexpr int64_t kInsideAlignment = 16;

int64_t aligned(int64_t bytes) { return base::round_up(bytes, kInsideAlignment); }

}  // namespace

ShmGroup::ShmGroup(std::string name, std::unique_ptr<Board> board, ShmArena* arena,
                   std::unique_ptr<ShmArena> own_arena)
    : Group(std::move(name), board->rank(), board->size(), shm_engine()),
      own_arena_(std::move(own_arena)),
      arena_(arena),
      board_(std::move(board)) {
  for (int q = 0; q < size(); ++q) peers_.push_back(&arena_->peer(board_->pages(q).arena));
}

ShmGroup::~ShmGroup() {
  for (void* memory : lent_) arena_->free(memory);
}

void ShmGroup::announce(const Call& call, const std::vector<Tensor>& sources, std::optional<PostForm> form) {
  turn_ ^= 1;
  Post& post = board_->pages(rank()).posts[turn_];
  LS_ASSERT(static_cast<int64_t>(sources.size()) <= kMostEntries);
  int64_t inside = 0, stream = 0;
  bool in_arena = true;
  for (const Tensor& source : sources) {
    inside += aligned(source.bytes());
    in_arena = in_arena && (source.bytes() == 0 || arena_->offset_of(source.data, source.bytes()));
  }
  post.form = form                     ? *form
              : inside <= kInlineBytes ? PostForm::inside
              : in_arena               ? PostForm::in_arena
                                       : PostForm::in_pieces;
  int64_t next = 0;
  for (size_t i = 0; i < sources.size(); ++i) {
    const int64_t bytes = sources[i].bytes();
    int64_t offset = stream;
    if (post.form == PostForm::inside) {
      offset = next;
      if (bytes > 0) std::memcpy(post.inside + next, sources[i].data, static_cast<size_t>(bytes));
      next += aligned(bytes);
    } else if (post.form == PostForm::in_arena) {
      offset = bytes > 0 ? *arena_->offset_of(sources[i].data, bytes) : 0;
    }
    post.entries[i] = {offset, bytes};
    stream += bytes;
  }
  post.entry_count = static_cast<int64_t>(sources.size());
  post.stream_bytes = stream;
  if (post.form == PostForm::in_pieces) stage(sources, 0);
  post.kind = static_cast<uint32_t>(call.kind);
  post.bytes = call.bytes;
  post.detail = call.detail;
  post.sequence = calls_++;
  board_->begin();
  board_->barrier();
  compare(call);
}

void ShmGroup::compare(const Call& call) const {
  for (int q = 0; q < size(); ++q) {
    const Post& post = post_of(q);
    if (post.kind == static_cast<uint32_t>(call.kind) && post.bytes == call.bytes &&
        post.detail == call.detail && post.sequence == calls_ - 1) {
      continue;
    }
    const auto kind =
        static_cast<Collective>(std::min<uint32_t>(post.kind, static_cast<uint32_t>(Collective::give_back)));
    throw CallFailed{fmt::format("rank {} called {} of {} bytes, this rank {} of {} bytes",
                                 board_->world_rank(q), name_of(kind), post.bytes, name_of(call.kind),
                                 call.bytes)};
  }
}

bool ShmGroup::someone(PostForm form) const {
  for (int q = 0; q < size(); ++q) {
    if (post_of(q).form == form) return true;
  }
  return false;
}

int64_t ShmGroup::rounds() const {
  int64_t most = 1;
  for (int q = 0; q < size(); ++q) {
    const Post& post = post_of(q);
    if (post.form == PostForm::in_pieces)
      most = std::max(most, base::divide_up(post.stream_bytes, kBounceBytes));
  }
  return most;
}

void ShmGroup::stage(const std::vector<Tensor>& sources, int64_t round) {
  std::byte* bounce = board_->pages(rank()).bounce[round & 1];
  const int64_t begin = round * kBounceBytes, end = begin + kBounceBytes;
  int64_t at = 0;  // where in the stream this source begins
  for (const Tensor& source : sources) {
    const int64_t from = std::max(begin, at), to = std::min(end, at + source.bytes());
    if (from < to)
      std::memcpy(bounce + (from - begin), source.as<std::byte>() + (from - at),
                  static_cast<size_t>(to - from));
    at += source.bytes();
  }
}

std::byte* ShmGroup::locate(int q, int64_t entry) const {
  Post& post = board_->pages(q).posts[turn_];
  const PostEntry place = post.entries[entry];
  if (entry >= post.entry_count)
    throw CallFailed{fmt::format("rank {} offers too few bytes", board_->world_rank(q))};
  if (post.form == PostForm::in_arena) {
    return place.bytes == 0 ? nullptr : peers_[static_cast<size_t>(q)]->at(place.offset, place.bytes);
  }
  LS_ASSERT(post.form == PostForm::inside && place.offset >= 0 && place.bytes >= 0 &&
            place.offset <= kInlineBytes - place.bytes);
  return post.inside + place.offset;
}

namespace {

std::unique_ptr<Group> make_shm_group(const GroupOptions& options, Store& store, SharedArena* arena) {
  const int size = static_cast<int>(options.ranks.size());
  const auto self = std::find(options.ranks.begin(), options.ranks.end(), options.self);
  LS_ASSERT(self != options.ranks.end());
  const int rank = static_cast<int>(self - options.ranks.begin());
  auto* shared = dynamic_cast<ShmArena*>(arena);
  std::unique_ptr<ShmArena> own;
  if (shared == nullptr) {
    own = std::make_unique<ShmArena>();
    shared = own.get();
  }
  const std::string key = "shm/" + options.name;
  SharedSegment segment;
  if (rank == 0) {
    segment = SharedSegment::create("lockstep-group", Board::bytes_for(size));
    store.set(key, segment.address().to_text());
  } else {
    SegmentAddress address;
    try {
      if (!SegmentAddress::from_text(store.get(key, options.timeout), &address) ||
          address.bytes != Board::bytes_for(size)) {
        throw base::CommError(521, fmt::format("group {}: rank {} announced a different group", options.name,
                                               options.ranks[0]));
      }
    } catch (const StoreTimeoutError&) {
      throw base::CommError(
          521, fmt::format("cannot create group {}: rank {} did not join within {:g} s", options.name,
                           options.ranks[0], static_cast<double>(options.timeout.count()) / 1000));
    }
    segment = SharedSegment::open(address);
  }
  auto board =
      std::make_unique<Board>(std::move(segment), Board::Options{options.ranks, rank, options.timeout});
  try {
    board->join(shared->address());
    if (rank == 0) store.remove(key);
    board->close_door();
    board->begin();
    board->barrier();  // the name is free again
  } catch (const CallFailed& failure) {
    throw base::CommError(521, fmt::format("cannot create group {}: {}", options.name, failure.why));
  }
  return std::make_unique<ShmGroup>(options.name, std::move(board), shared, std::move(own));
}

}  // namespace

const Engine& shm_engine() {
  static const Engine row{.name = "shm",
                          .describe = "ranks of one host read each other's memory",
                          .shares_memory = true,
                          .automatic = true,
                          .why_not = why_not_shm,
                          .make = make_shm_group};
  return row;
}

}  // namespace lockstep::comm
