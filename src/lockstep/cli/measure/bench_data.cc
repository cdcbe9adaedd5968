// lockstep bench data: how fast a run's batches are read, without a model.
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/cli/commands.h"
#include "lockstep/cli/print.h"
#include "lockstep/data/kind.h"
#include "lockstep/data/loader.h"

namespace lockstep::cli {
namespace {

struct Row {
  int64_t samples = 0, batches = 0, tokens = 0;
  double open_s = 0, seconds = 0, busy_s = 0;  // busy: of all threads, while batches were read
};

double clock_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double busy_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto of = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return of(usage.ru_utime) + of(usage.ru_stime);
}

Row measure(const recipe::Recipe& recipe, double seconds) {
  Row row;
  const double begun = clock_seconds();
  const auto dataset = data::open_dataset(recipe);
  row.open_s = clock_seconds() - begun;
  row.samples = dataset->samples(data::Split::train);
  data::Loader loader(*dataset, {.seed = static_cast<uint64_t>(recipe.run.seed),
                                 .global = recipe.batch.global,
                                 .seq_len = recipe.data.seq_len,
                                 .prefetch = recipe.data.prefetch,
                                 .workers = recipe.data.workers});
  for (int64_t i = 0; i <= recipe.data.prefetch; ++i)
    loader.next();  // memory is touched, threads are under way
  const double busy = busy_seconds(), first = clock_seconds();
  do {
    row.tokens += static_cast<int64_t>(loader.next()->inputs.size());
    ++row.batches;
    row.seconds = clock_seconds() - first;
  } while (row.seconds < seconds);
  row.busy_s = busy_seconds() - busy;
  return row;
}

}  // namespace

int bench_data(const std::vector<std::string>& words) {
  Arguments arguments("bench data", "Time the reading of batches, as training reads them.", words);
  recipe::RecipeSource source;
  double seconds = 3;
  bool json = false;
  arguments.recipe(source);
  arguments.option("--seconds", seconds, "how long to read");
  arguments.flag("--json", json, "print one JSON object");
  arguments.example("lockstep bench data data.path=tokens/ data.seq_len=1024 batch.global=32", "token files");
  if (!arguments.parse()) return 0;
  if (!(seconds > 0) || seconds > 3600)
    throw base::ConfigError(109, "--seconds must be above 0 and at most 3600");
  recipe::Resolved resolved = recipe::read_recipe(source);
  data::resolve_kind(resolved);
  const Row row = measure(resolved.recipe, seconds);
  const double tokens = static_cast<double>(row.tokens);
  if (json) {
    print("{}\n", nlohmann::ordered_json{{"samples", row.samples},
                                         {"open_s", row.open_s},
                                         {"batches", row.batches},
                                         {"tokens_per_s", tokens / row.seconds},
                                         {"tokens_per_processor_s", tokens / row.busy_s}}
                      .dump());
    return 0;
  }
  print("{} samples, opened in {:.3f} s\n", row.samples, row.open_s);
  print("{:.1f} million tokens/s ({:.1f} million per processor second), {:.0f} batches/s\n",
        tokens / row.seconds / 1e6, tokens / row.busy_s / 1e6,
        static_cast<double>(row.batches) / row.seconds);
  return 0;
}

}  // namespace lockstep::cli
