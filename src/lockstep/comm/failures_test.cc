// Ranks that never come, die, leave or call something else: what the others are told, and how soon.
#include <algorithm>
#include <array>
#include <atomic>
#include <numeric>
#include <random>

#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/base/refusal.h"
#include "lockstep/base/temporary_folder.h"
#include "lockstep/comm/shm/shm_arena.h"
#include "lockstep/comm/testing.h"

#if defined(__SANITIZE_THREAD__)
// Forked ranks start threads of their own, which ThreadSanitizer otherwise refuses.
extern "C" const char* __tsan_default_options() { return "die_after_fork=0"; }
#endif

namespace lockstep::comm {
namespace {

using base::refusal;
using device::DType;
using testing::ForkedRanks;
using testing::options_of;
using testing::run_threads;
using testing::TestRank;

void expect_has(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << "\"" << part << "\" is not in: " << text;
}

Tensor floats(std::vector<float>& values) {
  return {values.data(), DType::f32, {static_cast<int64_t>(values.size())}};
}

class Failures : public ::testing::TestWithParam<const char*> {};

TEST_P(Failures, ARankThatDoesNotJoinIsNamed) {
  for (const int absent : {0, 1}) {
    run_threads(3, [&](const TestRank& at) {
      if (at.rank == absent) return;
      const std::string told = refusal(
          521, [&] { make_group(GetParam(), options_of(at, "join", Duration(300)), *at.store, nullptr); });
      expect_has(told, "join");
      expect_has(told, "rank " + std::to_string(absent));
    });
  }
}

TEST_P(Failures, ARankThatDoesNotCallIsNamed) {
  std::atomic<int> told_count{0};
  run_threads(3, [&](const TestRank& at) {
    const auto group =
        make_group(GetParam(), options_of(at, "data.reduce", Duration(700)), *at.store, nullptr);
    std::vector<float> values(50'000, 1.0f);
    group->all_reduce(floats(values));
    if (at.rank == 1) {  // stuck
      while (told_count < 2) std::this_thread::sleep_for(std::chrono::milliseconds(10));
      return;
    }
    group->at(41, 7);
    const std::string told = refusal(520, [&] { group->all_reduce(floats(values)); });
    ++told_count;
    expect_has(told, "all_reduce (call 1 of group data.reduce, step 41)");
    expect_has(told, "rank 1");
    EXPECT_EQ(told.find("rank 2"), std::string::npos) << told;
    EXPECT_EQ(told.find(".cc:"), std::string::npos) << "a place in some source helps nobody: " << told;
    expect_has(refusal(520, [&] { group->barrier(); }), "an earlier call");
  });
}

TEST_P(Failures, AKilledRankIsNoticedLongBeforeTheTimeout) {
  const std::string engine = GetParam();
  ForkedRanks ranks(3, [&](const TestRank& at) {
    const auto group = make_group(engine, options_of(at, "g", Duration(60'000)), *at.store, nullptr);
    std::vector<float> values(100'000, 1.0f);
    if (at.rank == 2) {
      group->all_reduce(floats(values));
      at.store->set("pid", std::to_string(::getpid()));
      for (;;) ::pause();
    }
    group->all_reduce(floats(values));
    const std::string told = refusal(520, [&] { group->all_reduce(floats(values)); });
    at.store->set("told/" + std::to_string(at.rank), told);
  });
  const auto store = ranks.connect();
  store->get("pid", Duration(20'000));
  std::this_thread::sleep_for(std::chrono::milliseconds(300));  // the others wait by now
  const int64_t killed = base::monotonic_ns();
  ::kill(ranks.pid(2), SIGKILL);
  for (const int rank : {0, 1}) {
    const std::string told = store->get("told/" + std::to_string(rank), Duration(20'000));
    expect_has(told, "rank 2");
    if (engine == "shm") expect_has(told, "process " + std::to_string(ranks.pid(2)) + ") has died");
  }
  const double seconds = static_cast<double>(base::monotonic_ns() - killed) * 1e-9;
  EXPECT_LT(seconds, engine == "shm" ? 2 : 10);  // the aim is one; Gloo's ranks also compare notes
  EXPECT_EQ(ranks.join(0), 0);
  EXPECT_EQ(ranks.join(1), 0);
}

INSTANTIATE_TEST_SUITE_P(Engines, Failures, ::testing::Values("shm", "gloo"),
                         [](const ::testing::TestParamInfo<const char*>& row) {
                           return std::string(row.param);
                         });

TEST(ShmFailures, ARankThatLeftIsNotWaitedFor) {
  run_threads(2, [](const TestRank& at) {
    auto group = make_group("shm", options_of(at, "g"), *at.store, nullptr);
    group->barrier();
    if (at.rank == 1) return;
    const int64_t begin = base::monotonic_ns();
    expect_has(refusal(520, [&] { group->barrier(); }), "rank 1 has left the group");
    EXPECT_LT(base::monotonic_ns() - begin, 5'000'000'000);
  });
}

TEST(ShmFailures, DifferentCallsAreToldApart) {
  struct Row {
    std::function<void(Group&, std::vector<float>&)> first, second;
    const char* told;  // to rank 0
  };
  const auto reduce = [](size_t n) {
    return [n](Group& group, std::vector<float>& values) {
      group.all_reduce({values.data(), DType::f32, {static_cast<int64_t>(n)}});
    };
  };
  const auto barrier = [](Group& group, std::vector<float>&) { group.barrier(); };
  const auto gather = [](Group& group, std::vector<float>& values) {
    group.all_gather({{values.data(), DType::f32, {4}}, {values.data() + 4, DType::f32, {4}}});
  };
  const auto broadcast = [](int root) {
    return [root](Group& group, std::vector<float>& values) { group.broadcast(floats(values), root); };
  };
  const Row rows[] = {
      {reduce(8), reduce(9), "rank 1 called all_reduce of 36 bytes, this rank all_reduce of 32 bytes"},
      {reduce(8), reduce(20'000), "rank 1 called all_reduce of 80000 bytes"},
      {reduce(8), barrier, "rank 1 called barrier"},
      {gather, reduce(8), "this rank all_gather"},
      {broadcast(0), broadcast(1), "rank 1 called broadcast"},
  };
  for (const Row& row : rows) {
    run_threads(2, [&](const TestRank& at) {
      auto group = make_group("shm", options_of(at, "g"), *at.store, nullptr);
      std::vector<float> values(20'000);
      const std::string told = refusal(520, [&] { (at.rank == 0 ? row.first : row.second)(*group, values); });
      if (at.rank == 0) expect_has(told, row.told);
    });
  }
}

TEST(ShmFailures, ASegmentThatIsAnotherByNowIsRefused) {
  SharedSegment segment = SharedSegment::create("lockstep-test", 8192);
  SegmentAddress address;
  ASSERT_TRUE(SegmentAddress::from_text(segment.address().to_text(), &address));
  segment.data()[5000] = std::byte{42};
  EXPECT_EQ(SharedSegment::open(address).data()[5000], std::byte{42});
  SegmentAddress wrong = address;
  wrong.token[1] ^= 1;
  expect_has(refusal(525, [&] { SharedSegment::open(wrong); }), "is not the file");
  wrong = address;
  wrong.bytes = 4096;
  refusal(525, [&] { SharedSegment::open(wrong); });
  wrong = address;
  wrong.descriptor = 9999;
  refusal(525, [&] { SharedSegment::open(wrong); });
  segment.close_descriptor();
  refusal(525, [&] { SharedSegment::open(address); });
  for (const char* text : {"", "1 2 3", "x", "0 1 2 3 4 8192", "1 -1 2 3 4 8192", "1 1 2 3 4 -5"}) {
    EXPECT_FALSE(SegmentAddress::from_text(text, &address)) << text;
  }
}

TEST(Groups, TwoAtOnceFromTwoThreads) {
  run_threads(2, [](const TestRank& at) {
    const auto arena = make_shared_arena();
    const auto lane = [&](const std::string& name, int64_t count, std::unique_ptr<Store> store) {
      const auto group = make_group("shm", options_of(at, name), *store, arena.get());
      auto* values = static_cast<float*>(arena->allocate(count * 4));
      for (int round = 0; round < 300; ++round) {
        for (int64_t i = 0; i < count; ++i) values[i] = static_cast<float>(round + at.rank);
        group->all_reduce({values, DType::f32, {count}});
        for (int64_t i = 0; i < count; i += 97)
          ASSERT_EQ(values[i], static_cast<float>(2 * round + 1)) << name;
      }
      EXPECT_EQ(group->sequence(), 300);
    };
    std::thread other(lane, "gather", 100, at.store->clone());
    lane("reduce", 20'000, at.store->clone());
    other.join();
  });
}

// Each rank spoils its memory the moment a call returns, while slower ones may still be at it.
// Two pieces may be on their way; the third takes the place of the first.
TEST(Groups, PiecesOfALongMessageWaitForALateReceiver) {
  run_threads(2, [&](const TestRank& at) {
    const auto arena = make_shared_arena();
    const auto group = make_group("shm", options_of(at, "g"), *at.store, arena.get());
    std::vector<float> values(1'500'000, 0);  // outside the arena: six pieces of 1 MiB
    if (at.rank == 0) std::iota(values.begin(), values.end(), 0.0f);
    if (at.rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    const Tensor tensor{values.data(), DType::f32, {static_cast<int64_t>(values.size())}};
    if (at.rank == 0) group->send(tensor, 1);
    if (at.rank == 1) group->recv(tensor, 0);
    for (size_t i = 0; i < values.size(); ++i) ASSERT_EQ(values[i], static_cast<float>(i)) << i;
  });
}

TEST(Groups, MemoryIsOursAgainWhenACallReturns) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  run_threads(3, [&](const TestRank& at) {
    const auto arena = make_shared_arena();
    const auto group = make_group("shm", options_of(at, "g"), *at.store, arena.get());
    constexpr int64_t kMost = 400'000;
    std::vector<float> plain_in(3 * kMost), plain_out(3 * kMost);
    auto* shared_in = static_cast<float*>(arena->allocate(3 * kMost * 4));
    auto* shared_out = static_cast<float*>(arena->allocate(3 * kMost * 4));
    std::mt19937_64 choice(seed),
        dither(seed + 1 + static_cast<uint64_t>(at.rank));  // the first alike on all
    for (int round = 0; round < 400; ++round) {
      const int64_t n = std::array<int64_t, 4>{10, 1000, 9000, round % 20 == 0 ? kMost : 50}[choice() % 4];
      const auto operation = choice() % 6;
      const bool inside = dither() % 2 == 0;
      float* in = inside ? shared_in : plain_in.data();
      float* out = inside ? shared_out : plain_out.data();
      const auto value = [&](int rank, int part) {
        return static_cast<float>(round % 97 + 10 * rank + 100 * part);
      };
      const auto parts = [&](float* data) {
        std::vector<Tensor> all;
        for (int q = 0; q < 3; ++q) all.push_back({data + q * n, DType::f32, {n}});
        return all;
      };
      for (int q = 0; q < 3; ++q) std::fill(in + q * n, in + (q + 1) * n, value(at.rank, q));
      std::vector<float> wanted(3, 0);
      if (operation == 0) {
        group->all_to_all(parts(in), parts(out));
        for (int q = 0; q < 3; ++q) wanted[static_cast<size_t>(q)] = value(q, at.rank);
      } else if (operation == 1) {
        std::vector<Tensor> places = parts(out);
        places[static_cast<size_t>(at.rank)].data = in;
        group->all_gather(places);
        std::copy(in, in + n, out + at.rank * n);
        for (int q = 0; q < 3; ++q) wanted[static_cast<size_t>(q)] = value(q, 0);
      } else if (operation == 2) {
        group->reduce_scatter(parts(in), {out, DType::f32, {n}});
        for (int q = 0; q < 3; ++q) wanted[0] += value(q, at.rank);
      } else if (operation == 3) {
        const int root = round % 3;
        group->broadcast({at.rank == root ? in : out, DType::f32, {n}}, root);
        if (at.rank == root) std::copy(in, in + n, out);
        wanted[0] = value(root, 0);
      } else if (operation == 4) {
        group->all_reduce({in, DType::f32, {n}});
        std::copy(in, in + n, out);
        for (int q = 0; q < 3; ++q) wanted[0] += value(q, 0);
      } else {
        if (at.rank == 0) group->send({in, DType::f32, {n}}, 2);
        if (at.rank == 2) group->recv({out, DType::f32, {n}}, 0);
        wanted[0] = value(0, 0);
        if (at.rank != 2) std::fill(out, out + n, wanted[0]);
      }
      std::fill(in, in + 3 * n, -1.0f);
      for (int q = 0; q < (operation < 2 ? 3 : 1); ++q) {
        for (int64_t i = 0; i < n; ++i) {
          ASSERT_EQ(out[q * n + i], wanted[static_cast<size_t>(q)])
              << "operation " << operation << " round " << round << " rank " << at.rank << " part " << q;
        }
      }
      if (dither() % 8 == 0) std::this_thread::sleep_for(std::chrono::microseconds(dither() % 300));
    }
  });
}

TEST(Groups, MarksOfAKilledRankCanBeRead) {
  base::TemporaryFolder folder;
  const std::string path = folder.path() + "/ring";
  ForkedRanks ranks(2, [&](const TestRank& at) {
    const auto group = make_group("shm", options_of(at, "g"), *at.store, nullptr);
    std::vector<float> values(10);
    if (at.rank == 1) {
      for (int i = 0; i < 3; ++i) group->all_reduce(floats(values));
      for (;;) ::pause();
    }
    base::RingWriter ring(path, {.rank = 0});
    group->record_in(&ring, 5);
    for (int i = 0; i < 3; ++i) {
      group->at(100 + i, i);
      group->all_reduce(floats(values));
    }
    at.store->set("waits", "1");
    group->at(103, 9);
    group->barrier();  // nobody comes
  });
  ranks.connect()->get("waits", Duration(20'000));
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  ::kill(ranks.pid(0), SIGKILL);
  ranks.join(0);
  const auto entries = base::RingReader(path).entries();
  ASSERT_EQ(entries.size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    const base::RingStamp& stamp = entries[i].stamp;
    const auto kind = i < 3 ? Collective::all_reduce : Collective::barrier;
    EXPECT_EQ(stamp.op, kFirstCollectiveOp + static_cast<int>(kind));
    EXPECT_EQ(stamp.group, 5);
    EXPECT_EQ(stamp.sequence, static_cast<int64_t>(i));
    EXPECT_EQ(stamp.bytes, i < 3 ? 40 : 0);
    EXPECT_EQ(stamp.step, static_cast<int64_t>(100 + i));
    EXPECT_EQ(stamp.instruction, i < 3 ? static_cast<int32_t>(i) : 9);
    EXPECT_EQ(entries[i].state(), i < 3 ? base::RingEntry::State::finished : base::RingEntry::State::started);
  }
}

}  // namespace
}  // namespace lockstep::comm
