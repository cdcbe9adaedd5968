#include "lockstep/terminal/laps_table.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "lockstep/base/clock.h"

namespace lockstep::terminal {
namespace {

void sleep_ms(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

TEST(Laps, AddUpToTheTimeSinceTheProcessStarted) {
  base::Laps laps("load");
  sleep_ms(20);
  laps.end("first");
  sleep_ms(5);
  laps.end("second");
  sleep_ms(20);
  laps.end("first");
  const double whole = base::seconds_since_process_start();
  ASSERT_EQ(laps.all().size(), 3u);  // a name that comes again is the same lap
  EXPECT_EQ(laps.all()[0].what, "load");
  EXPECT_GE(laps.all()[1].seconds, 0.040);
  EXPECT_GE(laps.all()[2].seconds, 0.005);
  EXPECT_LT(laps.all()[2].seconds, laps.all()[1].seconds);
  EXPECT_NEAR(laps.total(), whole, 0.025);  // the kernel's tick, twice
}

TEST(Laps, TheTableShowsEveryLapAndTheTotal) {
  base::Laps laps("load");
  laps.end("open the device");
  const std::string text = laps_table(laps);
  for (const char* word : {"load", "open the device", "to the end of the first step", "100.0 %"}) {
    EXPECT_NE(text.find(word), std::string::npos) << word << "\n" << text;
  }
}

TEST(Laps, WhatAnotherThreadDidIsShownButNotCounted) {
  base::Laps laps("load"), other = base::Laps::from_now();
  EXPECT_TRUE(other.all().empty());
  sleep_ms(20);
  other.end("create the context");
  laps.end("wait for the device");
  const double total = laps.total();
  laps.add_meanwhile(other);
  EXPECT_EQ(laps.total(), total);
  ASSERT_EQ(laps.meanwhile().size(), 1u);
  EXPECT_GE(laps.meanwhile()[0].seconds, 0.020);
  const std::string text = laps_table(laps);
  EXPECT_GT(text.find("meanwhile: create the context"), text.find("to the end of the first step")) << text;
  EXPECT_NE(text.find("meanwhile: create the context"), std::string::npos) << text;
}

TEST(Laps, NobodyAsksNothingIsTimed) { base::end_lap(nullptr, "nothing"); }

}  // namespace
}  // namespace lockstep::terminal
