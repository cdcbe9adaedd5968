// Training as one call: everything that `lockstep train` does, for a C++ program.
//
//     #include "lockstep/train.h"
//     namespace ls = lockstep;
//
//     int main(int count, char** words) {  // mine.toml run.steps=400 --nproc 4
//       return ls::run_main([&] {
//         ls::CommandLine line = ls::read_command_line({words + 1, words + count});
//         line.options.data = std::make_shared<MyDataset>();
//         line.options.model = my_model;
//         return ls::train(ls::recipe::read_recipe(line.recipe), line.options).exit_code;
//       });
//     }
//
// The call goes on where the run folder's run stopped, saves checkpoints, writes metrics.jsonl and
// events.jsonl, and ends at a step boundary with everything saved when it is asked to stop (Ctrl-C, SIGTERM,
// SIGUSR1, SIGHUP, SIGQUIT; exit code 75: run me again). It joins the ranks that this process was started
// among, or starts them: with launch.nproc_per_node this process becomes the launcher and runs this same
// program, with the same words, once for each rank; ranks that fail it starts again.
//
// One call at a time in a process, which should end when the code is 75: from then on the signals that asked
// for it say nothing new. Free of LibTorch: modules come from lockstep/model/modules/autograd_torch.h.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/laps.h"
#include "lockstep/data/dataset.h"
#include "lockstep/launch/options.h"
#include "lockstep/model/block.h"
#include "lockstep/recipe/schema.h"
#include "lockstep/run/loop/trainer.h"
#include "lockstep/run/session/session.h"

namespace lockstep {

struct TrainResult {
  enum class Ended : uint8_t {
    trained,       // to the last step, or until it was asked to stop (exit code 75)
    already_done,  // the run folder holds all of the steps: nothing was computed
    rehearsed,     // a dry run
    launched       // this process was the launcher; its ranks have trained
  };
  Ended ended = Ended::trained;
  int exit_code = 0;   // 0 done, 75 preempted and saved; of a launcher: what its ranks came to
  bool first = false;  // this process speaks for the run: the first rank. A launcher never does
  std::string folder;  // the run folder
  int64_t steps = 0;   // done in all; of a launcher: those of the newest checkpoint
  bool finished = false;
  std::optional<double> loss, last_loss, eval_loss;  // as in run::Summary
  std::string params_hash;
  run::Summary summary;  // trained: all that there is to say of it
};

// What is known when all ranks are ready for the first step.
struct Planned {
  const run::Plan& plan;
  const run::Session* session = nullptr;  // null: a dry run
  const std::string& folder;
  int64_t first_step = 0;       // steps done before
  bool only_saves = false;      // no step follows: ranks before this one left something to save
  std::vector<double> earlier;  // losses of the steps before, as far as metrics.jsonl has them
};

// Told what happens, in order, on the thread that called train(). What is about the run (stepped, evaluated,
// event, planned, profiled, ended) is told to the first rank alone, what is said for a person on every rank:
// that of the others goes to their logs.
class TrainObserver : public run::Observer {
 public:
  virtual void planned(const Planned&) {}
  // The steps of TrainOptions::profile have run; `trace` is the file that holds them.
  virtual void profiled(const run::Session&, const run::Profile&, const std::string& trace) { (void)trace; }
  virtual void ended(const TrainResult&) {}  // the last step's checkpoint is written

  virtual void note(const std::string& line) { (void)line; }  // good to know
  virtual void remark(const std::string& line);     // to be known: what was passed over. Standard error
  virtual void warn(const std::string& line);       // standard error, behind "warning: "
  virtual void launcher(const std::string& lines);  // what a launcher says, whole lines. Standard error
};

// A program's own data: a dataset, or a function that opens one.
class DataSource {
 public:
  using Open = std::function<std::shared_ptr<data::Dataset>(const recipe::Recipe&)>;
  DataSource() = default;
  DataSource(Open open) : open_(std::move(open)) {}  // NOLINT: meant to convert
  template <class T>
  DataSource(std::shared_ptr<T> dataset)  // NOLINT: as above
      : open_([dataset = std::move(dataset)](const recipe::Recipe&) { return dataset; }) {}
  explicit operator bool() const { return open_ != nullptr; }
  std::shared_ptr<data::Dataset> open(const recipe::Recipe& recipe) const { return open_(recipe); }

 private:
  Open open_;
};

struct TrainOptions {
  // Instead of what the recipe names. The model is asked for once the device is known, and may be asked for
  // more than once; all of its first values must be the same each time. A torch::nn::Module is made in there:
  // for a GPU, the CUDA half of LibTorch is loaded right before.
  std::function<model::Model(const recipe::Recipe&, device::DType compute)> model = nullptr;
  DataSource data = {};
  TrainObserver* observer = nullptr;  // borrowed; null: warnings alone, on standard error

  std::string folder = {};      // the run folder; default: log.folder/run.name
  std::string resume = "auto";  // auto, never, or a checkpoint
  launch::Words launch = {};    // {.nproc_per_node = "4"}; a scheduler's environment counts too
  struct Steps {
    int64_t first = 0, last = 0;  // counted from 1; 0: none
  } profile = {};                 // noted in trace/profile.json
  bool dry_run = false;           // check everything and say the plan: start and write nothing
  base::Laps* laps = nullptr;     // of the way to the first step, where that is timed
};

// Throws base::Error when it cannot be: run_main() turns that into a sentence and an exit code.
TrainResult train(const recipe::Resolved& recipe, const TrainOptions& options);

// What main() needs around train(): closed pipes and file-size limits become errors of the write, and what
// is thrown becomes one sentence (on standard error, if nobody else is to complain) and the exit code of its
// kind: 1 failed, 2 refused, 3 data or checkpoint unusable.
int run_main(const std::function<int()>& body,
             const std::function<void(const std::string& sentence)>& complain = nullptr);

// A program's own words, read as `lockstep train` reads its: [RECIPE] [key=value ...] [--run DIR]
// [--resume auto|never|PATH] [--dry-run], and the launcher's flags (--nproc 4, --max-restarts 2, ...).
struct CommandLine {
  recipe::RecipeSource recipe;
  TrainOptions options;
};
// `defaults`: what the program trains with when no recipe is named; words override them. ConfigError 109 for
// other words.
CommandLine read_command_line(const std::vector<std::string>& words,
                              const std::vector<std::string>& defaults = {});

}  // namespace lockstep
