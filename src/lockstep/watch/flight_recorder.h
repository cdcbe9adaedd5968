// What PyTorch's flight recorder has written down of one rank: its newest collectives, read as data.
//
// A dump is a Python pickle of dictionaries, lists, texts and numbers. Python would run what a pickle asks
// for; this reader runs nothing: it knows the opcodes of such plain values and refuses every other one.
//
//     const FlightDump dump = read_flight_dump(bytes);
//     dump.calls.back().name == "gloo:all_reduce", dump.calls.back().completed == false
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::watch {

struct FlightCall {
  std::string group, name;  // "default_pg", "nccl:all_reduce"
  int64_t sequence = 0;     // of the group, counted by collectives
  bool completed = false;
  std::string where;  // "train.py:31 step": the newest frame that is not PyTorch's own
};

struct FlightDump {
  std::vector<FlightCall> calls;  // oldest first
  std::string problem;            // why it cannot be read; empty: read
};
FlightDump read_flight_dump(std::string_view bytes);

// A pickle of plain values as JSON. DataError 558: an opcode that would run or make something, a torn or an
// endless one.
nlohmann::json read_plain_pickle(std::string_view bytes);

// Which rank is behind in which group, from what all of them wrote; -1: nobody is.
struct Behind {
  int rank = -1;
  std::string sentence;  // "rank 2 has entered 811 collectives of default_pg, the others 812 (all_reduce)"
};
Behind who_is_behind(const std::vector<std::pair<int, FlightDump>>& dumps);

}  // namespace lockstep::watch
