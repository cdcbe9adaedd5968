// A device that is being opened while the recipe's data, model and program are made ready.
//
//     Opening opening("auto", local_rank);              // returns at once
//     const Id id = opening.id();                       // waits until it is known; throws as resolve()
//     std::unique_ptr<Device> it = opening.take();      // waits until it works; throws as open()
//     opening.finish(laps);                             // waits for the libraries behind it
//
// A GPU takes a good part of a second: one thread starts the driver and makes a context, and beside that
// another loads the plugin and the libraries that it calls. The CPU is there at once, without a thread.
#pragma once

#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>

#include "lockstep/base/laps.h"
#include "lockstep/device/device.h"

namespace lockstep::device {

// What is done, on which thread is Opening's business; tests bring their own. What `load` and `warm_up` throw
// is left to `open`, which needs the same.
struct OpeningSteps {
  std::function<Id()> find;                         // what will be opened; a CUDA driver runs then
  std::function<void(Id)> make_context;             // this and the next two: of GPUs only
  std::function<void(base::Laps&)> load;            // the plugin and its libraries
  std::function<void(Id, base::Laps&)> warm_up;     // what the libraries do once, in the context
  std::function<std::unique_ptr<Device>(Id)> open;  // of any device
};
// Several ranks speak over more streams than a GPU has queues by default.
OpeningSteps opening_steps(const std::string& request, int local_rank, bool several_ranks);

class Opening {
 public:
  Opening(const std::string& request, int local_rank, bool several_ranks = false);
  Opening(OpeningSteps steps, bool beside);  // `beside`: on threads; otherwise at once
  ~Opening();                                // waits for the threads
  Opening(const Opening&) = delete;
  Opening& operator=(const Opening&) = delete;

  Id id() const;
  std::unique_ptr<Device> take();  // once
  void finish(base::Laps* laps);   // adds what the threads did; null: only waits

 private:
  void start_driver();
  void start_libraries();

  OpeningSteps steps_;
  std::promise<Id> find_;
  std::shared_future<Id> found_ = find_.get_future().share();
  std::promise<void> make_context_;
  std::shared_future<void> context_ = make_context_.get_future().share();
  base::Laps driver_laps_ = base::Laps::from_now(), library_laps_ = base::Laps::from_now();
  std::thread driver_, libraries_;
};

}  // namespace lockstep::device
