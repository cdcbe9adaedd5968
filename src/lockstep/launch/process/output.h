// A stream of a rank on its way to a log file, to the console, or to both.
//
// A stream that goes only into a file is that file, with nobody in between. Others pass through the launcher,
// which keeps the last lines for the report of a failure. Where the console is a terminal and lines get no
// prefix, the rank is given a terminal too, so that its colours and progress bars stay as they are; the file
// gets lines as they stood in the end, without either.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/descriptor.h"
#include "lockstep/launch/process/console.h"
#include "lockstep/launch/process/disk_writer.h"

namespace lockstep::launch {

struct StreamPlan {
  std::string file;     // appended to; empty: none
  bool console = true;  // shown
  std::string prefix;   // before each line on the console: "[default0]:"
};

// Both streams of one rank.
struct StreamPlans {
  StreamPlan out, err;
};

constexpr size_t kMostLine = 64 << 10;  // a longer line is cut into several on the console
constexpr size_t kMostTail = 16 << 10;  // bytes kept for the report

class RankStream {
 public:
  // Both borrowed. `disk` writes the file, so that one that stands still does not hold up the launcher; null:
  // it is written here. IoError 532, 802.
  RankStream(StreamPlan plan, Console& console, DiskWriter* disk = nullptr);
  ~RankStream();
  RankStream(const RankStream&) = delete;
  RankStream& operator=(const RankStream&) = delete;

  int child_end() const { return child_; }  // given to the rank, then
  void close_child_end();
  int descriptor() const;  // -1: nothing to pump now, or ended
  void pump();             // passes on what is there, as far as the console keeps up; does not wait
  void drain();            // whether it keeps up or not: the rank has ended
  void finish();           // drain(), and a last line without an end
  const std::string& file() const { return plan_.file; }
  std::vector<std::string> last_lines(size_t count) const;

 private:
  void read_some(bool patient);
  void pass_on(const char* bytes, size_t count);
  void write_log(const char* bytes, size_t count);
  void log_as_seen(const char* bytes, size_t count);
  void log_line();
  void show(const char* bytes, size_t count);
  void show_line();

  StreamPlan plan_;
  Console& console_;
  DiskWriter* disk_;
  std::shared_ptr<const base::Descriptor>
      file_;  // null: none; the writer may still need it when this has gone
  int child_ = -1, read_ = -1;
  std::string tail_, line_;
  bool terminal_ = false, rewinds_ = false;  // the next letter overwrites the line
  std::string seen_;                         // terminal: the line that is being written, as it stands
};

std::string without_escapes(const std::string& line);  // terminal sequences such as colours taken out
std::vector<std::string> last_lines_of_file(const std::string& path, size_t count);
// The last lines of a text, without empty ones and control characters, each cut to 200 columns.
std::vector<std::string> last_lines_of(const std::string& text, size_t count);

}  // namespace lockstep::launch
