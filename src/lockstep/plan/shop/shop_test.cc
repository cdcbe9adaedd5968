#include "lockstep/plan/shop/deadline.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <ctime>

#include "lockstep/base/error.h"
#include "lockstep/plan/shop/where.h"

namespace lockstep::plan {
namespace {

TEST(Deadline, DaysAndSpans) {
  setenv("TZ", "UTC", 1);
  tzset();
  constexpr int64_t now = 1795003200;  // Wednesday, 2026-11-18, 12:00 UTC
  struct Row {
    const char* words;
    double hours;
  };
  for (const Row& row : {Row{"36h", 36}, Row{"3d", 72}, Row{"2w", 336}, Row{"1.5d", 36}, Row{"today", 12},
                         Row{"Wednesday", 12}, Row{"tomorrow", 36}, Row{"friday", 60}, Row{"fri", 60},
                         Row{"tuesday", 156}, Row{"2026-11-20", 60}, Row{" 2026-12-01 ", 324}}) {
    EXPECT_DOUBLE_EQ(hours_until(row.words, now), row.hours) << row.words;
  }
  for (const char* words : {"", "soon", "2026-11-17", "2026-13-01", "2026-11-20x", "-3d", "0h", "fr", "h"})
    EXPECT_THROW(hours_until(words, now), base::ConfigError) << words;
}

TEST(Where, EachServiceHasItsRun) {
  struct Row {
    RunShape shape;
    const char* expected;
  };
  for (const Row& row : {
           Row{{.machines = 1, .hours = 20}, "Vertex AI"},
           Row{{.machines = 2, .hours = 100, .spot = true}, "Vertex AI"},
           Row{{.machines = 8, .hours = 20}, "GKE"},
           Row{{.machines = 8, .hours = 500}, "GKE"},
           Row{{.machines = 1, .hours = 500}, "Compute Engine"},
           Row{{.machines = 1, .hours = 20, .workstation_hours = 10}, "one workstation"},
           Row{{.machines = 1, .hours = 20, .workstation_hours = 100}, "Vertex AI"},
           Row{{.machines = 1, .hours = 20, .workstation_hours = 100, .wanted_hours = 200},
               "one workstation"},
       }) {
    const std::vector<Home> homes = rank_homes(row.shape);
    ASSERT_EQ(homes.size(), 4u);
    EXPECT_EQ(homes[0].name, row.expected);
    EXPECT_TRUE(homes[0].suits);
    for (const Home& home : homes) EXPECT_FALSE(home.why.empty()) << home.name;
  }
}

}  // namespace
}  // namespace lockstep::plan
