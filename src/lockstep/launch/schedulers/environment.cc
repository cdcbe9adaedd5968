#include "lockstep/launch/schedulers/environment.h"

#include <fmt/format.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/number.h"
#include "lockstep/base/text.h"
#include "lockstep/launch/schedulers/environment_readers.h"

namespace lockstep::launch {

// mpirun inside a Slurm or PBS job sees both: what started the process itself comes first.
std::optional<Scheduled> read_environment(const Environment& environment, const FileReader& read) {
  for (const auto reader : {read_open_mpi, read_slurm, read_vertex, read_kubeflow, read_tpu, read_sagemaker,
                            read_azureml, read_pbs}) {
    if (std::optional<Scheduled> scheduled = reader(environment, read)) return scheduled;
  }
  return std::nullopt;
}

Environment this_environment() {
  Environment environment;
  for (char** entry = ::environ; entry && *entry; ++entry) {
    const std::string_view text = *entry;
    const size_t equals = text.find('=');
    if (equals != std::string_view::npos)
      environment.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return environment;
}

std::optional<std::string> read_small_file(const std::string& path) {
  base::ReadResult file = base::try_read_file(path, 16 << 20);
  if (!file.problem.empty()) return std::nullopt;
  return std::move(file.text);
}

// ---- variables ----------------------------------------------------------------------------------------

bool Variables::has(const std::string& name) const { return !text(name).empty(); }

std::string Variables::text(const std::string& name) const {
  const auto found = environment_.find(name);
  return found == environment_.end() ? "" : found->second;
}

std::string Variables::first_of(const std::vector<std::string>& names) const {
  for (const std::string& name : names) {
    if (has(name)) return name;
  }
  return "";
}

std::string Variables::shown(const std::string& name) const { return name + "=" + base::quoted(text(name)); }

void Variables::require(const std::vector<std::string>& names) const {
  std::vector<std::string> missing, present;
  for (const std::string& name : names) (has(name) ? present : missing).push_back(name);
  if (missing.empty()) return;
  throw base::ConfigError(
      540, fmt::format("incomplete {} environment: {} {} missing{}{}; unset the rest to run without it",
                       scheduler_, base::join(missing, ", "), missing.size() == 1 ? "is" : "are",
                       present.empty() ? "" : " beside ", base::join(present, ", ")));
}

int Variables::number(const std::string& name) const {
  require({name});
  const std::optional<int> value = parse_count(base::trimmed(text(name)));
  if (!value) unreadable(name, "is not an integer");
  return *value;
}

int Variables::number_or(const std::string& name, int otherwise) const {
  return has(name) ? number(name) : otherwise;
}

void Variables::require_below(const std::string& name, const std::string& limit) const {
  if (number(name) >= number(limit)) contradict(fmt::format("{} is not below {}", shown(name), shown(limit)));
}

void Variables::contradict(const std::string& sentence) const {
  throw base::ConfigError(541, fmt::format("contradictory {} environment: {}", scheduler_, sentence));
}

void Variables::unreadable(const std::string& name, const std::string& why) const {
  throw base::ConfigError(542, fmt::format("invalid {} environment: {} {}", scheduler_, shown(name), why));
}

Scheduled one_a_node(const std::string& scheduler, int nodes, int node) {
  Scheduled to;
  to.scheduler = scheduler;
  to.nodes = to.fewest_nodes = to.tasks = nodes;
  to.node = to.task = node;
  return to;
}

// ---- what several of them write -----------------------------------------------------------------------

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  for (size_t begin = 0;;) {
    const size_t end = text.find(separator, begin);
    parts.emplace_back(base::trimmed(text.substr(begin, end - begin)));
    if (end == std::string_view::npos) return parts;
    begin = end + 1;
  }
}

std::optional<int> parse_count(std::string_view digits) {
  constexpr int kMost = 1'000'000;
  const std::optional<int> value = base::parse_number<int>(digits);
  return value && digits[0] != '-' && *value <= kMost ? value : std::nullopt;
}

}  // namespace lockstep::launch
