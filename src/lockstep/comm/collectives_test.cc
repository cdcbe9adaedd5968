// Every operation on every engine, type and size, against sums that can be foretold.
#include <cstdlib>
#include <cstring>

#include "lockstep/comm/testing.h"

namespace lockstep::comm {
namespace {

using device::DType;
using testing::ForkedRanks;
using testing::options_of;
using testing::run_threads;
using testing::TestRank;

enum class Kind { threads, forked };
enum class Memory {
  arena,
  plain,
  mixed,
  gpu
};  // where tensors lie; mixed: every other rank has them outside

struct Row {
  const char* engine;
  int ranks;
  Kind kind;
  Memory memory;
};

std::string name_of_row(const ::testing::TestParamInfo<Row>& info) {
  static constexpr const char* kMemory[] = {"arena", "plain", "mixed", "gpu"};
  return std::string(info.param.engine) + "_" + std::to_string(info.param.ranks) +
         (info.param.kind == Kind::threads ? "_threads_" : "_forked_") +
         kMemory[static_cast<int>(info.param.memory)];
}

// Small whole numbers: their sums over eight ranks are exact in every type, bf16 included.
int64_t value_of(int rank, int part, int64_t i) { return (rank * 5 + part * 3 + i * 7) % 16; }

void put(const Tensor& tensor, int64_t i, int64_t value) {
  switch (tensor.dtype) {
    case DType::f32:
      tensor.as<float>()[i] = static_cast<float>(value);
      break;
    case DType::f64:
      tensor.as<double>()[i] = static_cast<double>(value);
      break;
    case DType::i32:
      tensor.as<int32_t>()[i] = static_cast<int32_t>(value);
      break;
    case DType::i64:
      tensor.as<int64_t>()[i] = value;
      break;
    case DType::u8:
      tensor.as<uint8_t>()[i] = static_cast<uint8_t>(value);
      break;
    case DType::bf16: {
      const auto bits = __builtin_bit_cast(uint32_t, static_cast<float>(value));
      tensor.as<uint16_t>()[i] = static_cast<uint16_t>(bits >> 16);
      break;
    }
    case DType::f16: {  // whole numbers up to 2048, by hand
      uint16_t bits = 0;
      if (value > 0) {
        int exponent = 0;
        while ((value >> exponent) > 1) ++exponent;
        bits = static_cast<uint16_t>((exponent + 15) << 10 | ((value << (10 - exponent)) & 0x3FF));
      }
      tensor.as<uint16_t>()[i] = bits;
      break;
    }
  }
}

// Tensors of one rank, in whatever memory its engine works on; values go in and out through the host.
class TestMemory {
 public:
  TestMemory(const TestRank& at, Memory memory)
      : arena_(make_shared_arena()),
        inside_(memory == Memory::arena || (memory == Memory::mixed && at.rank % 2 == 0)) {
    if (memory == Memory::gpu)
      device_ = device::open(device::resolve("cuda", at.rank % device::cuda_availability().devices));
  }
  SharedArena* arena() { return arena_.get(); }
  device::Device* device() { return device_.get(); }

  Tensor make(DType type, int64_t count) {
    Tensor tensor{nullptr, type, {count}};
    if (device_ || inside_) {
      blocks_.push_back(device_ ? device_->allocate(tensor.bytes()) : arena_->allocate(tensor.bytes()));
      tensor.data = blocks_.back();
    } else {
      plain_.push_back(std::make_unique<std::byte[]>(static_cast<size_t>(tensor.bytes()) + 8));
      tensor.data = plain_.back().get();
    }
    return tensor;
  }
  template <class Value>
  std::vector<std::byte> host(const Tensor& like, Value value) {
    std::vector<std::byte> bytes(static_cast<size_t>(like.bytes()));
    const Tensor copy{bytes.data(), like.dtype, like.shape};
    for (int64_t i = 0; i < copy.numel(); ++i) put(copy, i, value(i));
    return bytes;
  }
  template <class Value>
  void write(const Tensor& to, Value value) {
    const std::vector<std::byte> bytes = host(to, value);
    if (bytes.empty()) return;
    if (!device_) return static_cast<void>(std::memcpy(to.data, bytes.data(), bytes.size()));
    device_->copy(to.data, bytes.data(), to.bytes(), device::CopyKind::host_to_device, nullptr);
    device_->synchronize(nullptr);
  }
  std::vector<std::byte> read(const Tensor& from) {
    std::vector<std::byte> bytes(static_cast<size_t>(from.bytes()));
    if (bytes.empty()) return bytes;
    if (device_) {
      device_->copy(bytes.data(), from.data, from.bytes(), device::CopyKind::device_to_host, nullptr);
      device_->synchronize(nullptr);
    } else {
      std::memcpy(bytes.data(), from.data, bytes.size());
    }
    return bytes;
  }
  void clear() {
    for (void* block : blocks_) device_ ? device_->free(block) : arena_->free(block);
    blocks_.clear();
    plain_.clear();
  }

 private:
  std::unique_ptr<SharedArena> arena_;
  std::unique_ptr<device::Device> device_;
  bool inside_;
  std::vector<std::unique_ptr<std::byte[]>> plain_;
  std::vector<void*> blocks_;
};

// One rank of the table: its group, its memory, and a check for each operation.
class Checks {
 public:
  Checks(const TestRank& at, const Row& row) : at_(at), memory_(at, row.memory) {
    GroupOptions options = options_of(at, "table");
    options.device = memory_.device();
    group_ = make_group(row.engine, options, *at.store, memory_.arena());
  }

  void all(DType type, int64_t count) {
    SCOPED_TRACE(std::string(device::name_of(type)) + " x " + std::to_string(count));
    if (type != DType::u8) all_reduce(type, count), reduce_scatter(type, count);
    all_gather(type, count);
    all_to_all(type, count);
    broadcast(type, count);
    around_the_ring(type, count);
    borrow(type, count);
    group_->barrier();
    memory_.clear();
  }
  Group& group() { return *group_; }

 private:
  Tensor make(DType type, int64_t count, int rank, int part) {
    const Tensor tensor = memory_.make(type, count);
    memory_.write(tensor, [&](int64_t i) { return rank < 0 ? 9 : value_of(rank, part, i); });
    return tensor;
  }
  // Uneven and sometimes empty parts out of one size.
  int64_t part_count(int64_t count, int part) const {
    return (part * 2 + count) % 3 == 0 && at_.size > 1 ? 0 : count + part;
  }

  template <class Value>
  void expect(const Tensor& got, const char* what, Value value) {
    EXPECT_TRUE(memory_.read(got) == memory_.host(got, value))
        << what << " on rank " << at_.rank << " of " << at_.size;
  }
  int64_t sum(int part, int64_t i) const {
    int64_t total = 0;
    for (int q = 0; q < at_.size; ++q) total += value_of(q, part, i);
    return total;
  }

  void all_reduce(DType type, int64_t count) {
    const Tensor values = make(type, count, at_.rank, 0);
    group_->all_reduce(values);
    expect(values, "all_reduce", [&](int64_t i) { return sum(0, i); });
  }
  void reduce_scatter(DType type, int64_t count) {
    for (const bool in_place : {false, true}) {
      std::vector<Tensor> parts;
      for (int q = 0; q < at_.size; ++q) parts.push_back(make(type, part_count(count, q), at_.rank, q));
      const Tensor& own = parts[static_cast<size_t>(at_.rank)];
      const Tensor mine = in_place ? own : make(type, own.numel(), -1, 0);
      group_->reduce_scatter(parts, mine);
      expect(mine, "reduce_scatter", [&](int64_t i) { return sum(at_.rank, i); });
    }
  }
  void all_gather(DType type, int64_t count) {
    std::vector<Tensor> parts;
    for (int q = 0; q < at_.size; ++q)
      parts.push_back(make(type, part_count(count, q), q == at_.rank ? q : -1, q));
    group_->all_gather(parts);
    for (int q = 0; q < at_.size; ++q) {
      expect(parts[static_cast<size_t>(q)], "all_gather", [&](int64_t i) { return value_of(q, q, i); });
    }
  }
  void all_to_all(DType type, int64_t count) {
    std::vector<Tensor> send, recv;
    for (int q = 0; q < at_.size; ++q) {
      send.push_back(make(type, part_count(count, at_.rank + q), at_.rank, q));
      recv.push_back(make(type, part_count(count, at_.rank + q), -1, 0));
    }
    group_->all_to_all(send, recv);
    for (int q = 0; q < at_.size; ++q) {
      expect(recv[static_cast<size_t>(q)], "all_to_all", [&](int64_t i) { return value_of(q, at_.rank, i); });
    }
  }
  void broadcast(DType type, int64_t count) {
    for (const int root : {0, at_.size - 1}) {
      const Tensor values = make(type, count, at_.rank == root ? root : -1, 0);
      group_->broadcast(values, root);
      expect(values, "broadcast", [&](int64_t i) { return value_of(root, 0, i); });
    }
  }
  void around_the_ring(DType type, int64_t count) {
    if (at_.size == 1) return;
    const int next = (at_.rank + 1) % at_.size, before = (at_.rank + at_.size - 1) % at_.size;
    const Tensor out = make(type, count, at_.rank, 0), in = make(type, count, -1, 0);
    if (at_.rank % 2 == 0) {
      group_->send(out, next);
      group_->recv(in, before);
    } else {
      group_->recv(in, before);
      group_->send(out, next);
    }
    expect(in, "send and recv", [&](int64_t i) { return value_of(before, 0, i); });
  }
  // Rank q offers q % 3 + 1 tensors to each.
  void borrow(DType type, int64_t count) {
    const auto tensors = [](int q) { return static_cast<size_t>(q % 3 + 1); };
    const auto length = [&](int other, size_t n) { return n == 0 ? part_count(count, at_.rank + other) : 3; };
    std::vector<std::vector<Tensor>> offers(static_cast<size_t>(at_.size)), expected(offers.size());
    for (int q = 0; q < at_.size; ++q) {
      for (size_t n = 0; n < tensors(at_.rank); ++n) {
        offers[static_cast<size_t>(q)].push_back(make(type, length(q, n), at_.rank, q + static_cast<int>(n)));
      }
      for (size_t n = 0; n < tensors(q); ++n)
        expected[static_cast<size_t>(q)].push_back({nullptr, type, {length(q, n)}});
    }
    const Tensor staging = make(DType::u8, group_->staging_bytes(expected), -1, 0);
    for (int round = 0; round < 2; ++round) {
      const auto views = group_->borrow(offers, expected, staging);
      ASSERT_EQ(views.size(), static_cast<size_t>(at_.size));
      for (int q = 0; q < at_.size; ++q) {
        for (size_t n = 0; n < tensors(q); ++n) {
          expect(views[static_cast<size_t>(q)][n], "borrow",
                 [&](int64_t i) { return value_of(q, at_.rank + static_cast<int>(n), i + round); });
        }
      }
      group_->give_back();
      for (int q = 0; q < at_.size; ++q) {  // once given back, the memory is ours to change
        for (size_t n = 0; n < tensors(at_.rank); ++n) {
          memory_.write(offers[static_cast<size_t>(q)][n],
                        [&](int64_t i) { return value_of(at_.rank, q + static_cast<int>(n), i + 1); });
        }
      }
    }
  }

  TestRank at_;
  TestMemory memory_;
  std::unique_ptr<Group> group_;
};

// Several ranks on one GPU: NCCL allows it only to ranks that seem to be on hosts of their own.
void share_one_gpu(int rank) {
  ::setenv("NCCL_HOSTID", ("host-" + std::to_string(rank)).c_str(), 1);
  for (const char* name : {"NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE", "NCCL_IB_DISABLE"}) ::setenv(name, "1", 1);
  ::setenv("NCCL_SOCKET_IFNAME", "lo", 1);
}

class Collectives : public ::testing::TestWithParam<Row> {};

TEST_P(Collectives, GiveTheForetoldResult) {
  const Row row = GetParam();
  if (row.memory == Memory::gpu && device::cuda_availability().devices == 0) {
    GTEST_SKIP() << "no CUDA here: " << device::cuda_availability().why_not;
  }
  const auto body = [&](const TestRank& at) {
    if (row.memory == Memory::gpu) share_one_gpu(at.rank);
    Checks checks(at, row);
    EXPECT_STREQ(checks.group().engine(), at.size == 1 ? "alone" : row.engine);
    for (const DType type :
         {DType::f32, DType::bf16, DType::f16, DType::f64, DType::i32, DType::i64, DType::u8}) {
      // Within a post of 512 bytes, beyond it, and with several pieces of 1 MiB.
      for (const int64_t count : {0, 1, 7, 61, 1023, 20001}) checks.all(type, count);
    }
    checks.all(DType::f32, 600'011);
  };
  if (row.kind == Kind::threads) return run_threads(row.ranks, body);
  ForkedRanks(row.ranks, body).expect_all_well();
}

INSTANTIATE_TEST_SUITE_P(
    Engines, Collectives,
    ::testing::Values(
        Row{"shm", 1, Kind::threads, Memory::arena}, Row{"shm", 2, Kind::threads, Memory::arena},
        Row{"shm", 3, Kind::threads, Memory::mixed}, Row{"shm", 4, Kind::threads, Memory::plain},
        Row{"shm", 2, Kind::forked, Memory::arena}, Row{"shm", 3, Kind::forked, Memory::plain},
        Row{"shm", 5, Kind::forked, Memory::mixed}, Row{"shm", 8, Kind::forked, Memory::arena},
        Row{"gloo", 2, Kind::threads, Memory::plain}, Row{"gloo", 3, Kind::threads, Memory::arena},
        Row{"gloo", 3, Kind::forked, Memory::plain}, Row{"nccl", 2, Kind::forked, Memory::gpu},
        Row{"nccl", 3, Kind::forked, Memory::gpu}),
    name_of_row);

}  // namespace
}  // namespace lockstep::comm
