#include "lockstep/run/folder/patient_lines.h"

#include <utility>

#include "lockstep/base/error.h"

namespace lockstep::run {

namespace {

constexpr size_t kMostWaiting = 100'000;  // some 40 MB

}  // namespace

std::string PatientLines::write(std::string line) {
  const bool waited = !waiting_.empty();
  waiting_.push_back(std::move(line));
  if (waiting_.size() > kMostWaiting) waiting_.pop_front(), ++given_up_;
  try {
    for (; !waiting_.empty(); waiting_.pop_front()) writer_.write(waiting_.front());
  } catch (const base::IoError& error) {
    return waited ? "" : error.what();
  }
  return "";
}

}  // namespace lockstep::run
