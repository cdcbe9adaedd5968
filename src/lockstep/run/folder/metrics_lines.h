// metrics.jsonl of a run that goes on: lines of steps that will be done again come off its end.
//
// The file is the user's: it is cut in place, never rewritten, whatever its size and whatever else stands
// in it. Lines that are none of ours stay where they are.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep::run {

// Lines past `step` go. Returns the last step whose loss the file still tells; 0: none. IoError 818: it
// cannot be read or cut, and was not changed.
int64_t cut_lines_after(const std::string& path, int64_t step);

// The link of the last line that has one (run/shared/chain.h); empty: none has, or there is no such file.
std::string last_link(const std::string& path);

}  // namespace lockstep::run
