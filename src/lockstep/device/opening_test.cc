#include "lockstep/device/opening.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <latch>
#include <optional>

#include "lockstep/base/error.h"

namespace lockstep::device {
namespace {

constexpr Id kGpu{Kind::cuda, 1};

// Steps of a machine that does not exist; the device that they open is the CPU.
struct Fake {
  std::atomic<int> contexts = 0, loads = 0, warmed = 0;
  Id finds = kGpu;
  std::optional<base::ConfigError> refusal;  // of find
  bool opens = true;

  OpeningSteps steps() {
    OpeningSteps steps;
    steps.find = [this] {
      if (refusal) throw *refusal;
      return finds;
    };
    steps.make_context = [this](Id id) { contexts += id == finds ? 1 : 100; };
    steps.load = [this](base::Laps& laps) {
      ++loads;
      laps.end("load the CUDA plugin");
    };
    steps.warm_up = [this](Id, base::Laps& laps) {
      EXPECT_EQ(contexts, 1) << "the libraries start in a context";
      ++warmed;
      laps.end("start cuDNN");
    };
    steps.open = [this](Id) {
      EXPECT_EQ(contexts, 1) << "nothing is opened before there is a context";
      if (!opens) throw base::ConfigError(404, "the CUDA plugin cannot be loaded");
      return device::open({});
    };
    return steps;
  }
};

TEST(Opening, ADeviceComesFromTwoThreads) {
  Fake fake;
  Opening opening(fake.steps(), true);
  EXPECT_EQ(opening.id(), kGpu);
  EXPECT_NE(opening.take(), nullptr);
  base::Laps laps("load");
  opening.finish(&laps);
  EXPECT_EQ(fake.warmed, 1);
  std::string names;
  for (const base::Laps::Lap& lap : laps.meanwhile()) names += lap.what + "; ";
  for (const char* name :
       {"start the CUDA driver", "create the context", "load the CUDA plugin", "start cuDNN"}) {
    EXPECT_NE(names.find(name), std::string::npos) << name << " in " << names;
  }
}

TEST(Opening, TheContextIsMadeWhileTheLibrariesAreLoaded) {
  Fake fake;
  OpeningSteps steps = fake.steps();
  std::latch both(2);  // is passed only when the two threads run at the same time
  steps.make_context = [&](Id) { both.arrive_and_wait(), ++fake.contexts; };
  steps.load = [&](base::Laps&) { both.arrive_and_wait(), ++fake.loads; };
  Opening opening(std::move(steps), true);
  EXPECT_NE(opening.take(), nullptr);
}

TEST(Opening, WhatIsWrongIsSaidToWhoeverAsks) {
  Fake fake;
  fake.refusal.emplace(402, "CUDA cannot be used here: no NVIDIA driver");
  Opening opening(fake.steps(), true);
  for (int ask = 0; ask < 2; ++ask) {
    try {
      opening.id();
      ADD_FAILURE() << "no GPU was found";
    } catch (const base::ConfigError& error) {
      EXPECT_EQ(error.number(), 402);
    }
  }
  EXPECT_THROW(opening.take(), base::ConfigError);
  opening.finish(nullptr);
  EXPECT_EQ(fake.contexts + fake.loads + fake.warmed, 0);
}

TEST(Opening, APluginThatCannotBeLoadedIsTheTakersError) {
  Fake fake;
  fake.opens = false;
  OpeningSteps steps = fake.steps();
  steps.load = [](base::Laps&) { throw base::ConfigError(404, "the CUDA plugin cannot be loaded"); };
  Opening opening(std::move(steps), true);
  EXPECT_EQ(opening.id(), kGpu);
  EXPECT_THROW(opening.take(), base::ConfigError);
}

TEST(Opening, NobodyNeedToTakeIt) {  // another error came first
  Fake fake;
  { const Opening opening(fake.steps(), true); }
  EXPECT_EQ(fake.warmed, 1);  // the threads have ended, and no exception left them
  fake.refusal.emplace(402, "no");
  { const Opening opening(fake.steps(), true); }
}

TEST(Opening, TheCpuNeedsNoThread) {
  Fake fake;
  fake.finds = {Kind::cpu, 0};
  OpeningSteps steps = fake.steps();
  const std::thread::id here = std::this_thread::get_id();
  steps.find = [&] {
    EXPECT_EQ(std::this_thread::get_id(), here);
    return fake.finds;
  };
  steps.open = [](Id id) { return device::open(id); };
  Opening opening(std::move(steps), false);
  EXPECT_EQ(opening.take()->id().kind, Kind::cpu);
  base::Laps laps("load");
  opening.finish(&laps);
  EXPECT_TRUE(laps.meanwhile().empty());
  EXPECT_EQ(fake.contexts + fake.loads + fake.warmed, 0);
}

TEST(Opening, GivesWhatOpenAndResolveGive) {
  for (const char* request : {"cpu", "auto", "cuda", "cuda:0", "cuda:99", "gpu"}) {
    const auto told = [&](auto what) -> std::string {
      try {
        return what().to_string();
      } catch (const base::Error& error) {
        return error.what();
      }
    };
    Opening opening(request, 0);
    EXPECT_EQ(told([&] { return opening.id(); }), told([&] { return resolve(request, 0); })) << request;
    EXPECT_EQ(told([&] { return opening.take()->id(); }),
              told([&] { return open(resolve(request, 0))->id(); }))
        << request;
  }
}

}  // namespace
}  // namespace lockstep::device
