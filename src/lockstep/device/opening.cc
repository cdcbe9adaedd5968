#include "lockstep/device/opening.h"

#include <system_error>
#include <utility>

#include "lockstep/base/signals_blocked.h"

namespace lockstep::device {

Opening::Opening(const std::string& request, int local_rank, bool several_ranks)
    : Opening(opening_steps(request, local_rank, several_ranks), request != "cpu") {}

Opening::Opening(OpeningSteps steps, bool beside) : steps_(std::move(steps)) {
  if (beside) {
    const base::SignalsBlocked blocked;
    try {
      driver_ = std::thread([this] { start_driver(); });
      libraries_ = std::thread([this] { start_libraries(); });
      return;
    } catch (const std::system_error&) {  // no more threads: one after the other, then
    }
    if (!driver_.joinable()) start_driver();
    start_libraries();
    return;
  }
  start_driver();
}

Opening::~Opening() { finish(nullptr); }

void Opening::start_driver() {
  try {
    find_.set_value(steps_.find());
  } catch (...) {
    find_.set_exception(std::current_exception());
  }
  driver_laps_.end("start the CUDA driver");
  try {
    if (const Id id = found_.get(); id.kind == Kind::cuda) {
      steps_.make_context(id);
      driver_laps_.end("create the context");
    }
  } catch (...) {  // whoever asks for the device hears it
  }
  make_context_.set_value();
}

// Not beside the start of the driver: the loader's lock would only hold that up.
void Opening::start_libraries() {
  try {
    const Id id = found_.get();
    library_laps_.end("(libraries wait for the driver)");
    if (id.kind == Kind::cuda) {
      steps_.load(library_laps_);
      context_.wait();
      library_laps_.end("(libraries wait for the context)");
      steps_.warm_up(id, library_laps_);
    }
  } catch (...) {  // as above
  }
}

Id Opening::id() const { return found_.get(); }

std::unique_ptr<Device> Opening::take() {
  const Id id = found_.get();
  if (id.kind == Kind::cuda) context_.wait();
  return steps_.open(id);
}

void Opening::finish(base::Laps* laps) {
  if (!driver_.joinable()) return;
  driver_.join();
  libraries_.join();
  if (laps == nullptr || found_.get().kind != Kind::cuda) return;
  laps->add_meanwhile(driver_laps_);
  laps->add_meanwhile(library_laps_);
}

}  // namespace lockstep::device
