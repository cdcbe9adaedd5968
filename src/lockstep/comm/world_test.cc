#include "lockstep/comm/world.h"

#include <fmt/format.h>

#include <random>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/comm/consistency_check.h"
#include "lockstep/comm/shm/shm_segment.h"
#include "lockstep/comm/testing.h"

namespace lockstep::comm {
namespace {

using testing::run_threads;
using testing::TestRank;

WorldOptions world_of(const TestRank& at, Duration join = Duration(20000)) {
  WorldOptions options;
  options.seat.rank = at.rank;
  options.seat.world = at.size;
  options.timeout = Duration(20000);
  options.join_timeout = join;
  return options;
}

template <class Error, class Body>
void expect_error(int number, const std::string& part, Body body) {
  try {
    body();
    ADD_FAILURE() << "no error, expected " << part;
  } catch (const Error& error) {
    EXPECT_EQ(error.number(), number) << error.what();
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

TEST(World, OneRankNeedsNobody) {
  World world;
  EXPECT_EQ(world.size(), 1);
  EXPECT_TRUE(world.first());
  world.check_consistency({{"build", "a"}});
  const auto cpu = device::open({device::Kind::cpu, 0});
  const auto group = world.group("data", {0}, *cpu);
  EXPECT_STREQ(group->engine(), "alone");
  void* memory = world.arena().allocate(100);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % 4096, 0u);
  world.arena().free(memory);
}

TEST(World, GroupsOfOneHostShareMemory) {
  run_threads(4, [](const TestRank& at) {
    World world(world_of(at), at.store->clone());
    world.check_consistency({{"build", "a"}, {"optim.lr", "0.1"}});
    world.check_consistency({{"numerics", "b"}});  // again, with other facts
    const auto cpu = device::open({device::Kind::cpu, 0});
    const std::vector<int> pair = at.rank % 2 ? std::vector<int>{1, 3} : std::vector<int>{0, 2};
    const auto half = world.group("half." + std::to_string(at.rank % 2), pair, *cpu);
    const auto all = world.group("all", {0, 1, 2, 3}, *cpu);
    EXPECT_STREQ(half->engine(), "shm");
    EXPECT_EQ(half->rank(), at.rank / 2);
    auto* values = static_cast<float*>(world.arena().allocate(4));
    *values = static_cast<float>(1 + at.rank);
    half->all_reduce({values, device::DType::f32, {1}});
    EXPECT_EQ(*values, at.rank % 2 ? 6 : 4);
    all->all_reduce({values, device::DType::f32, {1}});
    EXPECT_EQ(*values, 20);
  });
}

TEST(World, TheConsistencyCheckNamesFactAndRankOnEveryRank) {
  struct Row {
    Facts odd;  // rank 2's
    const char* sentence;
  };
  const Facts facts{{"build", "a"}, {"optim.lr", "0.2"}, {"seed", "7"}};
  const Row rows[] = {
      {{{"build", "a"}, {"optim.lr", "0.1"}, {"seed", "8"}}, "rank 2 has optim.lr = 0.1, rank 0 has 0.2"},
      {{{"build", "a"}, {"optim.lr", "0.2"}}, "rank 2 does not have seed, rank 0 has 7"},
      {{{"build", "a"}, {"optim.lr", "0.2"}, {"seed", "7"}, {"more", "x"}},
       "rank 2 has more = x, rank 0 does not have it"},
  };
  for (const Row& row : rows) {
    run_threads(3, [&](const TestRank& at) {
      World world(world_of(at), at.store->clone());
      expect_error<base::ConfigError>(523, row.sentence,
                                      [&] { world.check_consistency(at.rank == 2 ? row.odd : facts); });
    });
  }
}

TEST(World, TheConsistencyCheckNamesWhoIsMissing) {
  run_threads(4, [](const TestRank& at) {
    if (at.rank == 1 || at.rank == 3) return;
    World world(world_of(at, Duration(300)), at.store->clone());
    expect_error<base::CommError>(521, "2 of 4 ranks did not join within 0.3 s: ranks 1, 3",
                                  [&] { world.check_consistency({}); });
  });
}

// Three processes of a world of four, two of them with the same number: told at once, not when time is up.
TEST(World, TheConsistencyCheckNamesANumberThatIsTakenTwice) {
  for (const int twice : {0, 1}) {
    run_threads(3, [&](const TestRank& at) {
      WorldOptions options = world_of(at);
      options.seat.world = 4;
      options.seat.rank = at.rank == 2 ? twice : at.rank;
      World world(options, at.store->clone());
      expect_error<base::ConfigError>(
          528, "two processes claim to be rank " + std::to_string(twice) + ": process ", [&] {
            world.check_consistency({{"build", "a"}});
          });
    });
  }
}

// One that comes when the others are at work must not wait for them.
TEST(World, ASecondComerIsToldSo) {
  const std::unique_ptr<Store> store = make_local_store();
  const auto seat = [&](int rank) {
    WorldOptions options;
    options.seat = {.rank = rank, .world = 2};
    options.join_timeout = Duration(20000);
    return options;
  };
  World first(seat(0), store->clone()), second(seat(1), store->clone());
  std::thread other([&] {
    second.check_consistency({{"build", "a"}}), second.check_consistency({{"record", "b"}});
  });
  first.check_consistency({{"build", "a"}});
  first.check_consistency({{"record", "b"}});
  other.join();
  for (const int late : {0, 1}) {
    World third(seat(late), store->clone());
    expect_error<base::ConfigError>(528, fmt::format("another process is already rank {} of this run", late),
                                    [&] {
                                      third.check_consistency({{"build", "a"}});
                                    });
  }
}

TEST(World, FactsSurviveAsBytes) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  for (int round = 0; round < 500; ++round) {
    Facts facts;
    for (uint64_t n = random() % 5; n > 0; --n) {
      std::string value;
      for (uint64_t size = random() % 20; size > 0; --size) value += static_cast<char>(random());
      facts.emplace_back("key:" + std::to_string(n), value);
    }
    std::string bytes = pack(facts);
    EXPECT_EQ(unpack(bytes), facts);
    if (bytes.empty()) continue;
    bytes[random() % bytes.size()] = static_cast<char>(random());
    unpack(bytes);  // whatever it gives, it does not crash
    unpack(bytes.substr(0, random() % bytes.size()));
  }
}

TEST(Engine, ARequestThatDoesNotFitIsRefused) {
  run_threads(2, [](const TestRank& at) {
    const GroupOptions options = testing::options_of(at, "requested");
    expect_error<base::ConfigError>(522, "\"mpi\" is not an engine",
                                    [&] { resolve_engine("mpi", options, *at.store); });
    expect_error<base::ConfigError>(522, "does not support CPU memory",
                                    [&] { resolve_engine("nccl", options, *at.store); });
    std::string why = "unset";
    EXPECT_EQ(resolve_engine("auto", options, *at.store, &why), "shm");
    EXPECT_EQ(why, "");
  });
}

// Rank 1 is only played: what it would say is put into the store.
TEST(Engine, RanksThatCannotShareMemoryUseGlooAndSayWhy) {
  const SharedSegment gone = SharedSegment::create("lockstep-test", 4096);
  SegmentAddress stale = gone.address();
  stale.token[0] ^= 1;
  struct Row {
    std::string member, verdict;
    const char* why;
  };
  const std::string none = SegmentAddress{}.to_text();
  const Row rows[] = {
      {"another-boot\n" + gone.address().to_text(), "", "rank 1 is on a different host from rank 0"},
      {"nonsense", "", "rank 1 is on a different host from rank 0"},
      {boot_id() + "\n" + none, "", "rank 1 cannot create shared memory"},
      {boot_id() + "\n" + stale.to_text(), "", "rank 0 cannot map rank 1's memory"},
      {boot_id() + "\n" + gone.address().to_text(), "rank 1 cannot map rank 0's memory (EACCES)",
       "rank 1 cannot map rank 0's memory (EACCES)"},
  };
  for (const Row& row : rows) {
    for (const std::string requested : {"auto", "shm"}) {
      const auto store = make_local_store();
      store->set("probe/g/member/1", row.member);
      store->set("probe/g/verdict/1", row.verdict);
      const GroupOptions options = testing::options_of({0, 2, store.get()}, "g", Duration(1000));
      std::string why;
      if (requested == "auto") {
        EXPECT_EQ(resolve_engine(requested, options, *store, &why), "gloo");
        EXPECT_NE(why.find(row.why), std::string::npos) << why;
      } else {
        expect_error<base::ConfigError>(522, row.why, [&] { resolve_engine(requested, options, *store); });
      }
    }
  }
  const auto store = make_local_store();  // and one that says nothing
  const GroupOptions options = testing::options_of({0, 2, store.get()}, "g", Duration(100));
  expect_error<base::CommError>(521, "rank 1 did not join", [&] { resolve_engine("auto", options, *store); });
}

}  // namespace
}  // namespace lockstep::comm
