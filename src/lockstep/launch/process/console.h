// The launcher's standard output or error, as the ranks' words reach it.
//
//     Console console(STDOUT_FILENO);
//     console.add(bytes, count);        // never waits
//     poll(console.descriptor()) ... console.flush();
//
// A reader that pauses (`| less`, Ctrl-S) must not hold up the launcher, which beats for its node and hears
// signals meanwhile: what cannot be written now is kept, and once full() the ranks wait instead. A reader
// that has gone does not end the ranks: the rest is dropped.
#pragma once

#include <cstddef>
#include <string>

namespace lockstep::launch {

class Console {
 public:
  explicit Console(int descriptor);  // borrowed
  ~Console();
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;

  void add(const char* bytes, size_t count);
  void flush();
  bool waits() const { return !waiting_.empty(); }  // then poll descriptor() for POLLOUT
  bool full() const { return waiting_.size() >= kMostWaiting; }
  int descriptor() const { return writer_; }
  int terminal() const { return given_; }  // for questions such as isatty()

 private:
  static constexpr size_t kMostWaiting = 256 << 10;
  int given_, writer_;
  bool never_blocks_ = false;
  std::string waiting_;
};

}  // namespace lockstep::launch
