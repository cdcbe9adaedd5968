// lockstep bench checkpoint: saving and loading against a plain copy, a plain writer and a plain reader of
// the same bytes, in turn on the same disk.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/text.h"
#include "lockstep/checkpoint/saving/range_writer.h"
#include "lockstep/cli/commands.h"
#include "lockstep/cli/print.h"
#include "lockstep/run/saving/saver.h"
#include "lockstep/run/session/load.h"

namespace lockstep::cli {

namespace {

namespace fs = std::filesystem;
using checkpoint::check_disk;

constexpr int64_t kBlock = int64_t{1} << 20;

double seconds_since(int64_t began) { return static_cast<double>(base::monotonic_ns() - began) / 1e9; }

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Of the pages that a file has in memory, none: so that reading means the disk.
void forget_pages(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return;
  ::posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
  ::close(file);
}

void forget_files(const std::string& folder) {
  for (const auto& file : fs::directory_iterator(folder)) forget_pages(file.path().string());
}

// The peers: what anybody would write without thinking.
class Plain {
 public:
  Plain(device::Device& device, std::string path, int64_t bytes)
      : device_(device), path_(std::move(path)), bytes_(bytes) {
    from_ = static_cast<char*>(device.allocate(bytes));
    host_ = static_cast<std::byte*>(device.allocate_host(bytes));
    device.fill_zero(from_, bytes, nullptr);
    copy();
  }
  ~Plain() {
    device_.free(from_);
    device_.free_host(host_);
    ::unlink(path_.c_str());
  }
  Plain(const Plain&) = delete;
  Plain& operator=(const Plain&) = delete;

  double copy() {
    const int64_t began = base::monotonic_ns();
    device_.copy(host_, from_, bytes_, device::CopyKind::device_to_host, nullptr);
    device_.synchronize(nullptr);
    return seconds_since(began);
  }
  double write() {
    const int64_t began = base::monotonic_ns();
    const int file = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    check_disk(file < 0 ? -errno : 0, path_);
    for (int64_t at = 0; at < bytes_;) {
      const ssize_t done = ::write(file, host_ + at, static_cast<size_t>(std::min(kBlock, bytes_ - at)));
      check_disk(done <= 0 ? -errno : 0, path_, at);
      at += done;
    }
    check_disk(::fsync(file) != 0 ? -errno : 0, path_, bytes_);
    ::close(file);
    return seconds_since(began);
  }
  // The files of a folder, one after the other.
  double read(const std::string& folder) {
    forget_files(folder);
    const int64_t began = base::monotonic_ns();
    for (const auto& entry : fs::directory_iterator(folder)) {
      const std::string path = entry.path().string();
      const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
      check_disk(file < 0 ? -errno : 0, path);
      for (int64_t at = 0;;) {
        const ssize_t done = ::read(file, host_ + at % (bytes_ - kBlock), static_cast<size_t>(kBlock));
        check_disk(done < 0 ? -errno : 0, path, at);
        if (done == 0) break;
        at += done;
      }
      ::close(file);
    }
    return seconds_since(began);
  }

 private:
  device::Device& device_;
  std::string path_;
  int64_t bytes_;
  char* from_ = nullptr;
  std::byte* host_ = nullptr;
};

struct Rounds {
  std::vector<double> copy, pause, plain_write, write, plain_read, load;
};

Rounds measure(run::Session& session, const std::string& folder, int64_t rounds) {
  Rounds r;
  run::Saver saver(session, folder);
  Plain plain(*session.plan.device, folder + "/plain", std::max(saver.own_bytes(), 4 * kBlock));
  for (int64_t round = 0; round <= rounds; ++round) {  // the first warms up
    r.copy.push_back(plain.copy());
    saver.save(round + 1);
    saver.finish();
    const run::Saved saved = *saver.poll();
    r.pause.push_back(saved.pause_ms / 1e3);
    r.write.push_back(saved.outcome.seconds);
    r.plain_write.push_back(plain.write());
    r.plain_read.push_back(plain.read(saved.outcome.folder));
    forget_files(saved.outcome.folder);
    const int64_t began = base::monotonic_ns();
    run::load_checkpoint(session, saved.outcome.folder);
    r.load.push_back(seconds_since(began));
    if (round > 0) continue;
    for (auto* list : {&r.copy, &r.pause, &r.write, &r.plain_write, &r.plain_read, &r.load}) list->clear();
  }
  return r;
}

}  // namespace

int bench_checkpoint(const std::vector<std::string>& words) {
  Arguments arguments("bench checkpoint", "Compare saving and loading with a plain copy, write and read.",
                      words);
  recipe::RecipeSource source;
  std::string parent = ".";
  int64_t rounds = 5;
  bool json = false;
  arguments.recipe(source);
  arguments.option("--folder", parent, "a folder on the disk to measure; files written there are removed");
  arguments.option("--rounds", rounds, "number of rounds; medians are reported");
  arguments.flag("--json", json, "print the figures as JSON");
  arguments.example("lockstep bench checkpoint model.hidden=512 model.layers=8", "300 MB of state");
  if (!arguments.parse()) return 0;
  if (rounds < 1) throw base::ConfigError(109, "--rounds must be at least 1");
  recipe::Resolved resolved = recipe::read_recipe(source);
  resolved.recipe.checkpoint.every = 1;
  resolved.recipe.checkpoint.keep = 1;
  const std::string folder = fmt::format("{}/lockstep-bench-{}", parent, ::getpid());
  base::make_folders(folder);
  const std::unique_ptr<const std::string, void (*)(const std::string*)> removed(
      &folder, [](const std::string* path) {
        std::error_code ignored;
        fs::remove_all(*path, ignored);
      });
  run::Session session(run::make_plan(std::move(resolved), {}));
  const Rounds r = measure(session, folder, rounds);
  int64_t bytes = 0;
  for (const auto& one : session.parameters->saved()) bytes += one.piece.bytes();
  const auto size = static_cast<double>(bytes);
  const double pause = median(r.pause), copy = median(r.copy), write = median(r.write),
               plain_write = median(r.plain_write), load = median(r.load), plain_read = median(r.plain_read);
  if (json) {
    print("{}\n", nlohmann::json{{"bytes", bytes},
                                 {"rounds", rounds},
                                 {"device", session.plan.device->id().to_string()},
                                 {"pause_ms", pause * 1e3},
                                 {"copy_ms", copy * 1e3},
                                 {"write_s", write},
                                 {"plain_write_s", plain_write},
                                 {"load_s", load},
                                 {"plain_read_s", plain_read}}
                      .dump());
    return 0;
  }
  print("{} of state on {}, medians of {} rounds\n", base::human_bytes(size),
        session.plan.device->id().to_string(), rounds);
  print("pause  {:>9}  plain copy   {:>9}  ratio {:.2f} (goal: at most 1.1)\n", base::human_duration(pause),
        base::human_duration(copy), pause / copy);
  print("save   {:>7.0f} MB/s  plain writer {:>7.0f} MB/s  {:.0f} % (goal: at least 80 %)\n",
        size / write / 1e6, size / plain_write / 1e6, 100 * plain_write / write);
  print("load   {:>7.0f} MB/s  plain reader {:>7.0f} MB/s  {:.0f} % (goal: at least 80 %)\n",
        size / load / 1e6, size / plain_read / 1e6, 100 * plain_read / load);
  return 0;
}

}  // namespace lockstep::cli
