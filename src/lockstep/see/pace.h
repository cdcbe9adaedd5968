// How fast a run is by its own log, lately and before.
#pragma once

#include "lockstep/see/metric_table.h"

namespace lockstep::see {

struct Pace {
  double usual = 0, lately = 0;  // seconds per step, medians; 0: not known
  double slower = 0;             // lately over usual, where that is worth a word; 0: it is not
  double data_share = 0;         // part of the newest steps that waited for data
};
Pace pace_of(const MetricTable& rows);

}  // namespace lockstep::see
