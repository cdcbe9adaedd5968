#include "lockstep/plan/shop/where.h"

#include <fmt/format.h>

#include <algorithm>

#include "lockstep/base/money.h"
#include "lockstep/base/text.h"

namespace lockstep::plan {

namespace {

// A custom job of Vertex AI ends after so long unless its timeout says otherwise, and a person who waits
// longer wants to look at the machines meanwhile.
constexpr double kVertexHours = 7 * 24;
// From so many machines on, what matters is that all come and go together.
constexpr int kManyMachines = 3;
// On the desk, without a date: a day and a night.
constexpr double kDeskHours = 24;

std::string long_time(double hours) { return base::human_duration(hours * 3600); }

Home workstation(const RunShape& s) {
  Home home{.name = "one workstation"};
  if (!s.workstation_hours) {
    home.why = "it does not fit the memory of one GPU that stands under a desk";
    return home;
  }
  const double most = s.wanted_hours.value_or(kDeskHours);
  home.suits = *s.workstation_hours <= most;
  home.why = fmt::format("{} takes {} of {} on one {}{}", home.suits ? "nothing need be rented: it" : "it",
                         long_time(*s.workstation_hours), long_time(most), s.workstation,
                         home.suits ? "" : ", which is too long");
  return home;
}

Home vertex(const RunShape& s) {
  Home home{.name = "Vertex AI", .target = "vertex"};
  home.suits = s.machines < kManyMachines && s.hours <= kVertexHours;
  home.why = home.suits ? fmt::format(
                              "{} {} for {}: a managed job makes the machines, restarts them and takes them "
                              "away when it ends, for a fee on top of their price",
                              s.machines, s.machines == 1 ? "machine" : "machines", long_time(s.hours))
             : s.hours > kVertexHours
                 ? fmt::format(
                       "{} is longer than the seven days after which its jobs end unless told "
                       "otherwise",
                       long_time(s.hours))
                 : fmt::format("{} machines must come and go together, which its queue does not promise",
                               s.machines);
  return home;
}

Home gke(const RunShape& s) {
  Home home{.name = "GKE", .target = "kubernetes"};
  home.suits = s.machines >= kManyMachines;
  home.why = home.suits ? fmt::format(
                              "{} machines: a JobSet starts them together, replaces those that are {}, and "
                              "the node pool shrinks to nothing afterwards",
                              s.machines, s.spot ? "preempted" : "lost")
                        : fmt::format("for {} {} a cluster is more to look after than the run", s.machines,
                                      s.machines == 1 ? "machine" : "machines");
  return home;
}

Home compute_engine(const RunShape& s) {
  Home home{.name = "Compute Engine", .target = "gce"};
  home.suits = s.machines < kManyMachines && s.hours > kVertexHours;
  home.why = home.suits
                 ? fmt::format(
                       "{} on {} {}: plain machines without a fee or a time limit, that you can log "
                       "in to; a commitment may pay",
                       long_time(s.hours), s.machines, s.machines == 1 ? "machine" : "machines")
                 : "the same machines without a manager: for people who want to log in, or whose run is long";
  return home;
}

}  // namespace

std::vector<Home> rank_homes(const RunShape& shape) {
  std::vector<Home> all{workstation(shape), vertex(shape), gke(shape), compute_engine(shape)};
  std::stable_sort(all.begin(), all.end(), [](const Home& a, const Home& b) { return a.suits && !b.suits; });
  return all;
}

}  // namespace lockstep::plan
