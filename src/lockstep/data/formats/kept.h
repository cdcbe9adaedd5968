// What a run keeps of its data in memory, counted while it grows: text that unpacks to more than the machine
// has is refused before the machine is out of memory.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep::data {

class KeptInMemory {
 public:
  KeptInMemory();  // of what is free now
  explicit KeptInMemory(int64_t most) : most_(most) {}
  void add(size_t bytes, const std::string& file);  // DataError 281

 private:
  int64_t most_, kept_ = 0;
};

}  // namespace lockstep::data
