// lockstep bench collectives: how fast the ranks of this host reach each other, engine by engine.
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/registry.h"
#include "lockstep/base/text.h"
#include "lockstep/cli/commands.h"
#include "lockstep/cli/print.h"
#include "lockstep/comm/bench_collectives.h"
#include "lockstep/comm/engine.h"
#include "lockstep/comm/store/store_server.h"
#include "lockstep/device/cpu_features.h"
#include "lockstep/device/device.h"
#include "lockstep/device/topology/topology_bandwidth.h"
#include "lockstep/device/topology/topology_read.h"

namespace lockstep::cli {
namespace {

using comm::BenchFigure;
using comm::BenchOptions;
using comm::BenchRow;
using nlohmann::ordered_json;

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> words{""};
  for (const char letter : text) {
    if (letter == ',') {
      words.emplace_back();
    } else {
      words.back() += letter;
    }
  }
  return words;
}

ordered_json to_json(const BenchRow& row) {
  ordered_json engines = ordered_json::object();
  for (const BenchFigure& figure : row.figures) {
    engines[figure.engine] = {{"time_us", figure.time_us},
                              {"algbw_gb_s", figure.algbw},
                              {"busbw_gb_s", figure.busbw},
                              {"wrong", figure.wrong}};
  }
  ordered_json json = {{"operation", row.operation}, {"bytes", row.bytes},
                       {"count", row.count},         {"type", "float"},
                       {"redop", row.redop},         {"engines", engines}};
  if (row.ideal_us > 0) json["ideal_us"] = row.ideal_us;
  return json;
}

BenchRow from_json(const ordered_json& json) {
  BenchRow row{json.at("operation"),       json.at("redop"), json.at("bytes"), json.at("count"), {},
               json.value("ideal_us", 0.0)};
  for (const auto& [engine, one] : json.at("engines").items()) {
    row.figures.push_back(
        {engine, one.at("time_us"), one.at("algbw_gb_s"), one.at("busbw_gb_s"), one.at("wrong")});
  }
  return row;
}

void print_heading(const BenchRow& row, int ranks) {
  std::string engines, columns;
  for (const BenchFigure& figure : row.figures) {
    engines += fmt::format("  {:^34}", figure.engine);
    columns += fmt::format("  {:>9} {:>8} {:>8} {:>6}", "time", "algbw", "busbw", "#wrong");
  }
  print("\n# {}, {} ranks\n#{:>37}{}\n", row.operation, ranks, "", engines);
  print("#{:>10} {:>12} {:>6} {:>6}{}{}\n", "size", "count", "type", "redop", columns,
        row.ideal_us > 0 ? "      ideal" : "");
  print("#{:>10} {:>12} {:>6} {:>6}", "(B)", "(elements)", "", "");
  for (size_t i = 0; i < row.figures.size(); ++i)
    print("  {:>9} {:>8} {:>8} {:>6}", "(us)", "(GB/s)", "(GB/s)", "");
  print("{}\n", row.ideal_us > 0 ? "       (us)" : "");
}

void print_row(const BenchRow& row) {
  print("{:>11} {:>12} {:>6} {:>6}", row.bytes, row.count, "float", row.redop);
  for (const BenchFigure& figure : row.figures) {
    print("  {:>9.2f} {:>8.2f} {:>8.2f} {:>6}", figure.time_us, figure.algbw, figure.busbw, figure.wrong);
  }
  if (row.ideal_us > 0) print("  {:>9.2f}", row.ideal_us);
  print("\n");
  std::fflush(stdout);
}

constexpr int64_t kLargeBytes = 8 << 20;  // from here on bandwidth counts, not latency

// The ranks: forked children that cannot outlive this process.
class Ranks {
 public:
  template <class Body>
  Ranks(int count, Body body) {
    std::fflush(nullptr);
    const pid_t parent = ::getpid();
    for (int rank = 0; rank < count; ++rank) {
      const pid_t child = ::fork();
      if (child < 0) throw base::IoError(803, "cannot start a rank: the system refuses another process");
      if (child == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (::getppid() != parent) ::_exit(1);
        ::_exit(body(rank));
      }
      children_.push_back(child);
    }
  }
  ~Ranks() {
    for (const pid_t child : children_) ::kill(child, SIGKILL);
    for (const pid_t child : children_) ::waitpid(child, nullptr, 0);
  }
  // Whether they still run; -1 when one has failed.
  int running() {
    int running = 0;
    for (size_t i = 0; i < children_.size();) {
      int status = 0;
      if (::waitpid(children_[i], &status, WNOHANG) == 0) {
        ++running;
        ++i;
        continue;
      }
      children_.erase(children_.begin() + static_cast<long>(i));
      if (status != 0) return -1;
    }
    return running;
  }

 private:
  std::vector<pid_t> children_;
};

// Its groups need a GPU.
bool carries_gpus(const std::string& name) {
  const comm::Engine* engine = comm::find_engine(name);
  return engine != nullptr && !engine->carries_memory_of(device::Kind::cpu);
}

std::vector<std::string> engines_here() {
  // A look at the driver's files, because CUDA itself must not be touched before the ranks are forked.
  const bool gpus = std::filesystem::exists("/proc/driver/nvidia/version");
  std::vector<std::string> names = base::names_of(comm::engines());
  if (!gpus) std::erase_if(names, carries_gpus);
  return names;
}

base::ConfigError too_large(const BenchOptions& options, double needed, double free) {
  const int64_t most = *std::max_element(options.sizes.begin(), options.sizes.end());
  return base::ConfigError(
      524, fmt::format("--sizes up to {} needs {}, but only {} is free; choose a smaller size or fewer ranks",
                       base::human_bytes(static_cast<double>(most)), base::human_bytes(needed),
                       base::human_bytes(free)));
}

// Before the kernel ends other people's processes for us.
void check_memory(const BenchOptions& options, int64_t ranks) {
  // Two buffers of the largest size for each engine on the CPU, and one to compare with.
  const auto on_gpu = std::count_if(options.engines.begin(), options.engines.end(), carries_gpus);
  const auto buffers = 2 * (static_cast<int64_t>(options.engines.size()) - on_gpu) + 1;
  const int64_t most = *std::max_element(options.sizes.begin(), options.sizes.end());
  const double needed = static_cast<double>(most) * static_cast<double>(buffers * ranks);
  const auto free = static_cast<double>(device::host_memory().available_bytes);
  if (needed > free) throw too_large(options, needed, free);
}

// One rank: rows go to the parent through the store, and so does the sentence when it fails.
int run_rank(int rank, int ranks, const comm::StoreClientOptions& client, const BenchOptions& options) {
  try {
    const auto store = comm::connect_store(client);
    const auto tell = [&](const base::Error& error) {
      store->push(
          "rows",
          ordered_json{{"number", error.number()}, {"exit", error.exit_code()}, {"error", error.what()}}
              .dump());
    };
    try {
      comm::bench_collectives(rank, ranks, *store, options, [&](const BenchRow& row) {
        if (rank == 0) store->push("rows", to_json(row).dump());
      });
      return 0;
    } catch (const base::Error& error) {
      tell(error);
    } catch (const device::OutOfMemory& refused) {
      tell(too_large(options, static_cast<double>(refused.asked_bytes),
                     static_cast<double>(refused.free_bytes)));
    }
  } catch (const std::exception& error) {
    remark("lockstep: rank {}: {}\n", rank, error.what());
  }
  return 1;
}

// Starts the ranks, prints their rows as they come, and says whether all figures were right.
int measure(const BenchOptions& options, int count, bool json) {
  comm::StoreServerOptions server_options;
  server_options.secret = comm::Secret::random();
  const comm::StoreServer server(server_options);
  comm::StoreClientOptions client;
  client.endpoint = server.endpoint();
  client.secret = server_options.secret;
  Ranks processes(count, [&](int rank) { return run_rank(rank, count, client, options); });
  const auto store = comm::connect_store(client);
  std::string last;
  int64_t wrong = 0;
  double nccl_busbw = 0;
  for (bool over = false; !over;) {
    const int running = processes.running();  // asked first: rows of who has ended are all there
    over = running <= 0;
    while (const auto text = store->pop("rows", comm::Duration(over ? 0 : 200))) {
      const ordered_json message = ordered_json::parse(*text);
      if (message.contains("error")) {
        const std::string sentence = message.at("error");
        remark("lockstep: {}\n", sentence);
        return message.at("exit");
      }
      const BenchRow row = from_json(message);
      for (const BenchFigure& figure : row.figures) {
        wrong += figure.wrong;
        const bool large = row.operation == "all_reduce" && row.bytes >= kLargeBytes;
        if (large && carries_gpus(figure.engine)) nccl_busbw = figure.busbw;  // the largest comes last
      }
      if (json) {
        print("{}\n", message.dump());
        std::fflush(stdout);
      } else {
        if (row.operation != last) print_heading(row, count);
        print_row(row);
      }
      last = row.operation;
    }
    if (running < 0) throw base::CommError(520, "a rank of the benchmark died; see its output above");
  }
  if (!json) print("\n# wrong elements: {}\n", wrong);
  const std::string slow =
      nccl_busbw > 0 ? device::slow_link(device::read_topology(), count, nccl_busbw) : "";
  if (!slow.empty()) remark("warning: {}\n", slow);
  return wrong == 0 ? 0 : 1;
}

}  // namespace

int bench_command(Arguments& arguments) {
  const std::vector<std::string>& words = arguments.words();
  if (!words.empty() && words[0] == "checkpoint") return bench_checkpoint({words.begin() + 1, words.end()});
  if (!words.empty() && words[0] == "data") return bench_data({words.begin() + 1, words.end()});
  if (!words.empty() && words[0] == "generate") return bench_generate({words.begin() + 1, words.end()});
  if (!words.empty() && words[0] == "machine") return bench_machine({words.begin() + 1, words.end()});
  if (!words.empty() && words[0] == "step") return bench_step({words.begin() + 1, words.end()});
  std::string subject, engines, sizes = "16:32M:4", operations;
  int64_t ranks = 2;
  bool json = false, bind = false;
  arguments.positional("SUBJECT", subject,
                       "what to measure: collectives, checkpoint, data, step, generate or machine (`lockstep "
                       "bench step --help`)");
  arguments.option("--nproc,--nproc-per-node", ranks, "ranks on this host");
  arguments.option("--engine", engines,
                   fmt::format("engines, comma-separated: {}; default: those that work here",
                               base::join(base::names_of(comm::engines()), ", ")));
  arguments.option("--sizes", sizes, "MIN:MAX or MIN:MAX:FACTOR in bytes, with K, M or G");
  arguments.option("--op", operations, "operations, comma-separated; default: all");
  arguments.flag("--bind", bind, "pin each rank to its own core: steadier results on a busy machine");
  arguments.flag("--json", json, "print one JSON object per row");
  arguments.example("lockstep bench collectives --nproc 4", "every operation, both engines");
  arguments.example("lockstep bench checkpoint", "saving and loading; see its own --help");
  arguments.example("lockstep bench collectives --op all_reduce --sizes 64K:64K", "one figure");
  if (!arguments.parse()) return 0;
  if (subject != "collectives") {
    throw base::ConfigError(
        109, fmt::format("unknown benchmark {}; use `lockstep bench collectives`, "
                         "`lockstep bench checkpoint`, `lockstep bench data`, `lockstep bench step`, "
                         "`lockstep bench generate` or `lockstep bench machine`",
                         base::quoted(subject)));
  }
  if (ranks < 2 || ranks > 1024)
    throw base::ConfigError(109, "--nproc must be 2 to 1024: collectives need at least two ranks");
  BenchOptions options;
  options.engines = engines.empty() ? engines_here() : split(engines);
  options.bind = bind;
  options.sizes = comm::parse_sizes(sizes);
  if (!operations.empty()) options.operations = split(operations);
  for (const std::string& name : options.operations) {
    const auto& known = comm::bench_operations();
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    throw base::ConfigError(
        109, fmt::format("--op {} is not one of {}", base::quoted(name), base::join(known, ", ")));
  }
  check_memory(options, ranks);
  return measure(options, static_cast<int>(ranks), json);
}

}  // namespace lockstep::cli
