// The readers behind read_environment(), and what they share: variables that complain by name.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/launch/schedulers/environment.h"

namespace lockstep::launch {

// The variables of one scheduler. Numbers are whole and not negative.
class Variables {
 public:
  Variables(std::string scheduler, const Environment& environment)
      : scheduler_(std::move(scheduler)), environment_(environment) {}

  bool has(const std::string& name) const;          // set, and not empty
  std::string text(const std::string& name) const;  // "" if absent
  std::string first_of(
      const std::vector<std::string>& names) const;  // the name of the first that is set, or ""

  // ConfigError 540 with all that are missing: half an environment is worse than none.
  void require(const std::vector<std::string>& names) const;
  int number(const std::string& name) const;                    // ConfigError 540, 542
  int number_or(const std::string& name, int otherwise) const;  // ConfigError 542
  void require_below(const std::string& name,
                     const std::string& limit) const;  // ConfigError 541: name < limit

  [[noreturn]] void contradict(const std::string& sentence) const;                      // ConfigError 541
  [[noreturn]] void unreadable(const std::string& name, const std::string& why) const;  // ConfigError 542
  std::string shown(const std::string& name) const;                                     // `RANK="3"`

 private:
  std::string scheduler_;
  const Environment& environment_;
};

// One task on each of `nodes` nodes.
Scheduled one_a_node(const std::string& scheduler, int nodes, int node);

// "n[01-03,7],login" to {"n01", "n02", "n03", "n7", "login"}. Nothing: malformed, or more than 65536 names.
std::optional<std::vector<std::string>> expand_node_list(std::string_view list);
// Slurm's "2(x3),1" to {2, 2, 2, 1}. Nothing: malformed or too long.
std::optional<std::vector<int>> expand_counts(std::string_view counts);
std::optional<int> parse_count(std::string_view digits);  // to a million
std::vector<std::string> split(std::string_view text, char separator);

// Each: nothing when this process is not a task of that scheduler.
std::optional<Scheduled> read_open_mpi(const Environment& environment, const FileReader& read);
std::optional<Scheduled> read_slurm(const Environment& environment, const FileReader& read);
std::optional<Scheduled> read_vertex(const Environment& environment, const FileReader& read);
std::optional<Scheduled> read_kubeflow(const Environment& environment, const FileReader& read);
std::optional<Scheduled> read_tpu(const Environment& environment, const FileReader& read);
std::optional<Scheduled> read_sagemaker(const Environment& environment, const FileReader& read);
std::optional<Scheduled> read_azureml(const Environment& environment, const FileReader& read);
std::optional<Scheduled> read_pbs(const Environment& environment, const FileReader& read);

}  // namespace lockstep::launch
