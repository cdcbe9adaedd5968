// MLflow's file store: a folder per run with one file per metric, parameter and tag, as `mlflow ui` reads it.
//
// A run keeps its id from call to call, so writing it again replaces what was there.
#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <map>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/hash.h"
#include "lockstep/see/run_events.h"
#include "lockstep/see/sink.h"

namespace lockstep::see {

namespace {

namespace fs = std::filesystem;

constexpr const char* kExperiment = "746570000000000001";  // its id; its name is "lockstep"
constexpr size_t kLongestParameter = 6000;                 // MLflow's own limit

// In single quotes, on one line.
std::string yaml(const std::string& text) {
  std::string out = "'";
  for (const char c : text)
    out += c == '\'' ? "''" : std::string(1, static_cast<unsigned char>(c) < ' ' ? ' ' : c);
  return out + "'";
}

// What MLflow allows in a name that is a file's.
std::string file_name(const std::string& metric) {
  std::string out;
  for (const char c : metric)
    out += std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '-' ? c : '_';
  return out.starts_with('.') ? "_" + out : out;
}

void write_plain(const std::string& path, const std::string& text, const char* how) {
  std::FILE* file = std::fopen(path.c_str(), how);
  const bool written = file != nullptr && std::fwrite(text.data(), 1, text.size(), file) == text.size();
  const int error = errno;
  if ((file != nullptr && std::fclose(file) != 0) || !written)
    throw base::IoError(763, fmt::format("{} cannot be written: {}", path, std::strerror(error)));
}

class Mlflow final : public Sink {
 public:
  Mlflow(const std::string& out, const SinkRun& run) : run_(run) {
    const std::string root = fs::absolute(out).lexically_normal();
    const std::string from = fs::weakly_canonical(run.folder);
    id_ = base::hex64(base::hash_text(from)) + base::hex64(base::hash_text(from, 1));
    experiment_ = root + "/" + kExperiment, folder_ = experiment_ + "/" + id_;
    std::error_code none;
    for (const char* part : {"/metrics", "/params"}) fs::remove_all(folder_ + part, none);
    for (const char* part : {"/metrics", "/params", "/tags", "/artifacts"})
      base::make_folders(folder_ + part);
    if (!fs::exists(experiment_ + "/meta.yaml", none)) {
      write_plain(
          experiment_ + "/meta.yaml",
          fmt::format("artifact_location: {}\nexperiment_id: '{}'\nlifecycle_stage: active\nname: lockstep\n",
                      yaml("file://" + experiment_), kExperiment),
          "w");
    }
    for (const auto& [key, value] : run.keys)
      write_plain(folder_ + "/params/" + file_name(key), value.substr(0, kLongestParameter), "w");
    write_plain(folder_ + "/tags/mlflow.runName", run.name, "w");
    write_plain(folder_ + "/tags/mlflow.source.name", "lockstep", "w");
  }

  void row(const LogRow& row) override {
    rows_.add(row);
    put(row);
  }
  void rewind(int64_t step) override {
    MetricTable kept;
    for (size_t i = 0; i < rows_.size(); ++i) {
      if (rows_.step(i) <= step) kept.add(rows_[i]);
    }
    rows_ = std::move(kept);
    waiting_.clear();
    for (const fs::directory_entry& file : fs::directory_iterator(folder_ + "/metrics"))
      fs::remove(file.path());
    for (size_t i = 0; i < rows_.size(); ++i) put(rows_[i]);
  }
  void flush() override {
    for (const auto& [name, lines] : waiting_) write_plain(folder_ + "/metrics/" + name, lines, "a");
    waiting_.clear();
    write_meta();
  }

 private:
  void put(const LogRow& row) {
    for (const auto& [name, value] : row.values)
      waiting_[file_name(name)] += fmt::format("{:.0f} {} {}\n", row.seconds * 1000, value, row.step);
  }
  // How the run is, as far as its events tell, in MLflow's numbers: running, finished, failed, killed.
  void write_meta() const {
    const std::vector<RunEvent> events = read_events(run_.folder);
    const std::string ending = events.empty() ? "" : ending_of(events.back().name);
    const int status = ending == "finished" ? 3 : ending == "failed" ? 4 : ending == "preempted" ? 5 : 1;
    const auto millis = [](double seconds) { return fmt::format("{:.0f}", seconds * 1000); };
    const double began = !events.empty() ? events.front().seconds : rows_.empty() ? 0 : rows_.seconds(0);
    const std::string ended = status == 1 ? "null" : millis(events.back().seconds);
    base::write_file_durable(
        folder_ + "/meta.yaml",
        fmt::format(
            "artifact_uri: {}\nend_time: {}\nentry_point_name: ''\nexperiment_id: '{}'\nlifecycle_stage: "
            "active\nrun_id: {}\nrun_name: {}\nsource_name: ''\nsource_type: 4\nsource_version: "
            "''\nstart_time: {}\nstatus: {}\ntags: []\nuser_id: ''\n",
            yaml("file://" + folder_ + "/artifacts"), ended, kExperiment, yaml(id_), yaml(run_.name),
            millis(began), status));
  }

  SinkRun run_;
  std::string id_, experiment_, folder_;
  MetricTable rows_;
  std::map<std::string, std::string> waiting_;  // lines by file
};

}  // namespace

std::unique_ptr<Sink> open_mlflow(const std::string& out, const SinkRun& run) {
  return std::make_unique<Mlflow>(out, run);
}

}  // namespace lockstep::see
