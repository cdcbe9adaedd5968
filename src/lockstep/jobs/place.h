// Where a run shall run and on what: one machine park of a user, named in ~/.config/lockstep/targets.toml.
//
//     [lab]                      # lockstep submit first.toml --to lab
//     kind = "slurm"
//     partition = "gpu"
//     nodes = 4
//     gpus = 8                   # per node
//     time = "24h"
//
// Every key is one row of settings(): the row gives reading, checking, writing and `lockstep targets --keys`.
// Flags of `lockstep submit` set the same members, through the same rows.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace lockstep::jobs {

struct Seconds {
  int64_t count = 0;  // 0: none given
};
using Words = std::vector<std::string>;

struct Place {
  std::string name;  // "lab"; the kind itself where targets.toml has no such table
  std::string kind;  // a row of target_table()

  // What every kind of place knows.
  int64_t nodes = 1;
  int64_t gpus = 0;        // per node
  std::string gpu_type;    // as the place calls it: "nvidia-tesla-a100", "a100"
  int64_t ranks = 0;       // per node; 0: one per GPU, or one
  int64_t cpus = 0;        // per node; 0: the place's default
  int64_t memory_gib = 0;  // per node
  int64_t disk_gib = 0;
  std::string machine;       // machine type of a cloud
  Seconds time;              // after this the place ends the job
  Seconds notice{120};       // warning before that
  std::string image;         // container image with Lockstep in it
  std::string program;       // lockstep on those machines
  std::string folder;        // there: data and runs/ are relative to it
  Words environment;         // NAME=value
  Words secrets;             // NAME=file:PATH, NAME=kubernetes:SECRET/KEY, NAME=google:SECRET
  int64_t failures = 3;      // restarts of all ranks after a failure
  int64_t preemptions = 20;  // returns after exit 75
  bool spot = false;         // machines that may be taken away, for less money
  Words options;             // more words for the place's own client, as they are

  // Batch systems.
  std::string partition, account, qos, constraint, container;
  int64_t fewest_nodes =
      0;             // it starts with so many where `nodes` are not to be had; 0: with all or not at all
  Words components;  // more nodes of other kinds: "nodes=2 gpus=4 constraint=a100"
  // ssh.
  Words hosts;
  std::string bundle;  // a folder here that is copied to every host
  int64_t port = 0;    // 0: not set
  // Kubernetes.
  std::string context, space, form, queue, service_account, claim, runtime;
  Words node_labels, tolerations;
  // Clouds.
  std::string project, region, zone, network, bucket, strategy;
  std::string cluster, boot_image, placement, topology;
  Words networks;
  int64_t local_ssd = 0;
  bool managed = false, new_cluster = false;
  Seconds max_wait;
  std::string address;                             // Ray
  std::string role, profile;                       // SageMaker
  std::string workspace, resource_group, compute;  // Azure ML
};

struct Setting {
  using Member =
      std::variant<std::string Place::*, int64_t Place::*, bool Place::*, Seconds Place::*, Words Place::*>;
  std::string name;
  Member member;
  std::string kinds;  // kinds of place that use it, with blanks between; empty: all
  std::string meaning;
  std::string example;
  Words choices = {};
  int64_t at_least = 0;
};
const std::vector<Setting>& settings();
const Setting* find_setting(std::string_view name);
bool counts_for(const Setting& setting, const std::string& kind);

// From text, as a flag gives it: lists with commas. ConfigError 720, 721; `where` begins the sentence.
void set(Place& place, const std::string& key, const std::string& text, const std::string& where);
std::string text_of(const Setting& setting, const Place& place);
// Values end up in scripts, manifests and command lines: one line each, nothing that a terminal or a line
// of #SBATCH would obey. ConfigError 721, which does not repeat the value.
void check_line(const std::string& value, const std::string& where);
// ConfigError 722: a setting that this kind of place does not know. 721: a value of several lines.
void check(const Place& place);

Seconds parse_duration(const std::string& text);  // "24h", "1d12h", "90m", "45s"; 0: it is none
std::string duration_text(Seconds time);          // "1d12h"

// targets.toml, in its order. ConfigError 720 to 722 name file and line. A file that is not there: none.
std::vector<Place> read_targets(const std::string& file);
std::string targets_file();  // $XDG_CONFIG_HOME/lockstep/targets.toml
// The kinds of nodes of a heterogeneous job: the place itself, then one place for each of its components.
// ConfigError 721.
std::vector<Place> components_of(const Place& place);
// A table of targets.toml, or a kind with its defaults. ConfigError 723.
Place find_place(const std::string& name, const std::vector<Place>& places);

}  // namespace lockstep::jobs
