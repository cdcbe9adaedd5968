// What the launcher and the processes that it has forked tell each other: records over a socket, with open
// files beside them.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace lockstep::launch {

constexpr size_t kMostDescriptors = 8;  // beside one record

// False, and errno: nobody is there.
bool send_record(int socket, const void* record, size_t bytes, std::span<const int> descriptors);

struct Received {
  ssize_t bytes = 0;               // 0: the other side has gone; below: errno
  std::vector<int> descriptors{};  // the receiver's to close
  bool complete = true;            // false: some were left out, for this process may not open more files
};
Received receive_record(int socket, void* record, size_t bytes, int flags = 0);

// What is too long for a record goes into a file in memory, beside it. -1, and errno: it cannot be made.
int make_letter(const std::string& bytes);
std::string read_letter(int file);

}  // namespace lockstep::launch
