// Where the time since the process's start went, in laps that follow each other: they always add up.
//
//     Laps laps("load the program");        // the first: from the process's start to here
//     ...; laps.end("open the device");
//     fputs(terminal::laps_table(laps).c_str(), stdout);
//
// A lap whose name was there before is added to it. What other threads did meanwhile is listed below the
// total and is no part of it: in the laps stands only what this thread waited for.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::base {

class Laps {
 public:
  explicit Laps(std::string_view first);
  static Laps from_now();                 // for another thread: no first lap
  void end(std::string_view what);        // what happened since the lap before it
  void add_meanwhile(const Laps& other);  // of a thread that has ended

  struct Lap {
    std::string what;
    double seconds = 0;
  };
  const std::vector<Lap>& all() const { return laps_; }
  const std::vector<Lap>& meanwhile() const { return meanwhile_; }
  double total() const;  // seconds

 private:
  Laps();
  std::vector<Lap> laps_, meanwhile_;
  int64_t last_ns_;
};

// For code that is timed only sometimes.
inline void end_lap(Laps* laps, std::string_view what) {
  if (laps != nullptr) laps->end(what);
}

}  // namespace lockstep::base
