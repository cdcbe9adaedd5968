// What an earlier start of a run left in its folder: its recipe, its checkpoints, how it ended.
//
// A run that is started again takes over what "auto" meant the first time, or says which keys differ.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/recipe/schema.h"

namespace lockstep::run {

// What stands in the folder before a run.
struct Earlier {
  bool exists = false;
  std::string checkpoint;  // folder of the newest complete checkpoint; empty when there is none
  int64_t step = 0;        // of that checkpoint
  std::string damage;      // of config.toml, where a checkpoint still has the recipe; a line for a person
};
Earlier look_at(const std::string& folder);

// Of config.toml, or of the newest checkpoint where that one is damaged; nothing where there is none.
std::optional<recipe::Recipe> earlier_recipe(const std::string& folder);

// Keys that the user left at "auto" take the value that an earlier run in this folder found. ConfigError 160
// lists keys that differ from that run's, and what to do.
void adopt_earlier(recipe::Resolved& resolved, const std::string& folder);
void refuse_changes(const recipe::Resolved& resolved, const std::string& folder);
// The same for keys that `said` does not leave at "auto"; `alone` is what it comes to in a folder of its own.
void refuse_said_changes(const recipe::Resolved& said, const recipe::Resolved& alone,
                         const std::string& folder);

// What a checkpoint was saved with; nothing when it does not say, or another version said it.
std::optional<recipe::Recipe> recipe_of(const std::string& checkpoint);

// The folder's complete checkpoints that a run of this recipe saved, newest first. Others lie there too when
// a run was started over, or from one of them, with other keys: going on from those would mix two runs.
struct OwnCheckpoints {
  std::vector<std::string> folders;
  int64_t step = 0;         // of the first
  std::string passed_over;  // the others, with the keys that differ; lines for a person
  void drop_newest();
};
OwnCheckpoints checkpoints_of(const std::string& folder, const recipe::Resolved& resolved);

// Whether a run in this folder has ever saved, as far as is left to tell of it.
bool has_saved(const std::string& folder);

// Whether its events tell of the end of a run of so many steps; also where there are none, as in a folder
// that was fetched from a store.
bool tells_its_end(const std::string& folder, int64_t steps);

// How a run of so many steps ended, what Summary says of it: by the event "finished", or else by
// metrics.jsonl, as far as lines were kept.
struct RecordedEnd {
  std::optional<double> loss;       // mean of the last tenth
  std::optional<double> last_loss;  // of the last step, where it was logged
  std::optional<double> eval_loss;
};
// As fields of the event.
inline constexpr std::pair<const char*, std::optional<double> RecordedEnd::*> kEndFields[] = {
    {"loss", &RecordedEnd::loss},
    {"last_loss", &RecordedEnd::last_loss},
    {"eval_loss", &RecordedEnd::eval_loss}};
// The losses of its first `steps` steps, where metrics.jsonl has them; each stands for the steps that were
// not logged before it. Empty where there are none.
std::vector<double> recorded_losses(const std::string& folder, int64_t steps);
RecordedEnd recorded_end(const std::string& folder, int64_t steps);

}  // namespace lockstep::run
