#include "lockstep/jobs/ledger.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "lockstep/base/environment.h"
#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/text.h"

namespace lockstep::jobs {
namespace {

using nlohmann::json;

std::string now() {
  const std::time_t time = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&time, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

// Only what differs from the defaults: the ledger stays readable, and older lines stay valid. Lists are
// lists: an item may have a comma.
json place_json(const Place& place) {
  static const Place defaults;
  json all{{"name", place.name}};
  for (const Setting& setting : settings()) {
    const std::string text = text_of(setting, place);
    if (text == text_of(setting, defaults)) continue;
    const auto* list = std::get_if<Words Place::*>(&setting.member);
    all[setting.name] = list ? json(place.**list) : json(text);
  }
  return all;
}

Place place_from(const json& all) {
  Place place;
  place.name = all.at("name");
  for (const auto& [key, value] : all.items()) {
    const Setting* setting = key == "name" ? nullptr : find_setting(key);
    if (!setting) continue;
    const auto* list = std::get_if<Words Place::*>(&setting->member);
    if (list && value.is_array())
      place.** list = value.get<Words>();
    else  // so are lists in lines of older versions
      set(place, key, value.get<std::string>(), key);
  }
  return place;
}

// One event onto what the lines before it have said.
class Replay {
 public:
  void add(const json& line) {
    const std::string event = line.at("event"), id = line.at("job");
    if (event == "job") return open(id, line);
    const auto found = index_.find(id);
    if (found == index_.end()) return;
    Submitted& job = jobs_[found->second];
    if (event == "asks") job.resources.push_back(resource_from(line));
    if (event == "complete") job.submission = Submitted::Submission::complete;
    if (event == "failed") job.submission = Submitted::Submission::failed;
    if (event == "stopped") job.stopped = true;
    if (event != "has" && event != "gone") return;
    for (Resource& resource : job.resources) {
      if (resource.label != line.at("label").get<std::string>()) continue;
      resource.state = event == "has" ? Resource::State::made : Resource::State::gone;
      if (event == "has") resource.id = line.at("id");
    }
  }
  std::vector<Submitted> take() { return std::move(jobs_); }

 private:
  void open(const std::string& id, const json& line) {
    Submitted job;
    job.id = id;
    job.name = line.at("name");
    job.time = line.at("time");
    job.place = place_from(line.at("place"));
    job.state_folder = line.at("folder");
    job.process = line.at("process");
    job.birth = base::ProcessBirth::from_text(line.value("birth", ""));
    if (index_.emplace(id, jobs_.size()).second) jobs_.push_back(std::move(job));
  }
  static Resource resource_from(const json& line) {
    return {.job = line.at("job"),
            .label = line.at("label"),
            .find = line.at("find"),
            .remove = line.at("remove"),
            .costs = line.at("costs"),
            .id = line.at("id")};
  }
  std::vector<Submitted> jobs_;
  std::map<std::string, size_t> index_;
};

Command with_id(const std::vector<std::string>& words, const std::string& id) {
  Command command{.words = words};
  for (std::string& word : command.words) {
    for (size_t at; (at = word.find("{id}")) != std::string::npos && id.find("{id}") == std::string::npos;)
      word.replace(at, 4, id);
  }
  return command;
}

// Closes on every way out; the lock goes with it.
struct LockedFile {
  int file = -1;
  explicit LockedFile(const std::string& path)
      : file(::open(path.c_str(), O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0600)) {
    if (file >= 0) ::flock(file, LOCK_EX);
  }
  ~LockedFile() {
    if (file >= 0) ::close(file);
  }
  LockedFile(const LockedFile&) = delete;
  LockedFile& operator=(const LockedFile&) = delete;
};

bool ends_in_a_line(int file) {
  const off_t size = ::lseek(file, 0, SEEK_END);
  char last = '\n';
  return size <= 0 || (::pread(file, &last, 1, size - 1) == 1 && last == '\n');
}

bool write_all(int file, const std::string& text) {
  for (size_t done = 0; done < text.size();) {
    const ssize_t put = ::write(file, text.data() + done, text.size() - done);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return false;
    done += static_cast<size_t>(put);
  }
  return true;
}

void sync_folder(const std::string& folder) {
  const int file = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (file < 0) return;
  ::fsync(file);
  ::close(file);
}

}  // namespace

Command find_command(const Resource& resource) { return with_id(resource.find, resource.id); }
Command remove_command(const Resource& resource) { return with_id(resource.remove, resource.id); }

std::string Submitted::id_of(const std::string& label) const {
  for (const Resource& resource : resources) {
    if (resource.label == label) return resource.id;
  }
  return "";
}

Ledger::Ledger(std::string folder) : folder_(std::move(folder)) {}

// On disk when it returns: what follows may be killed at any moment.
void Ledger::append(const std::string& line) {
  base::make_folders(folder_);
  const bool fresh = !std::filesystem::exists(file());
  LockedFile locked(file());
  const std::string text = (locked.file >= 0 && !ends_in_a_line(locked.file) ? "\n" : "") + line + "\n";
  if (locked.file < 0 || !write_all(locked.file, text) || ::fsync(locked.file) != 0)
    throw base::IoError(
        727, fmt::format("cannot write {}: {}; nothing is asked of a place before it is written there",
                         file(), std::strerror(errno)));
  if (fresh) sync_folder(folder_);
}

void Ledger::open_job(const Submitted& job) {
  append(json{{"event", "job"},
              {"time", now()},
              {"job", job.id},
              {"name", job.name},
              {"place", place_json(job.place)},
              {"folder", job.state_folder},
              {"process", ::getpid()},
              {"birth", base::birth_of(::getpid()).to_text()}}
             .dump());
}

void Ledger::asks(const Resource& resource) {
  append(json{{"event", "asks"},
              {"time", now()},
              {"job", resource.job},
              {"label", resource.label},
              {"id", resource.id},
              {"find", resource.find},
              {"remove", resource.remove},
              {"costs", resource.costs}}
             .dump());
}

void Ledger::has(const Resource& resource, const std::string& id) {
  append(json{{"event", "has"}, {"time", now()}, {"job", resource.job}, {"label", resource.label}, {"id", id}}
             .dump(-1, ' ', false, json::error_handler_t::replace));
}

void Ledger::gone(const Resource& resource, const std::string& why) {
  append(
      json{{"event", "gone"}, {"time", now()}, {"job", resource.job}, {"label", resource.label}, {"why", why}}
          .dump(-1, ' ', false, json::error_handler_t::replace));
}

void Ledger::close_job(const std::string& job, Submitted::Submission how) {
  append(json{
      {"event", how == Submitted::Submission::complete ? "complete" : "failed"},
      {"time", now()},
      {"job",
       job}}.dump());
}

void Ledger::stopped(const std::string& job) {
  append(json{{"event", "stopped"}, {"time", now()}, {"job", job}}.dump());
}

std::vector<Submitted> Ledger::jobs() const {
  unreadable_ = 0;
  if (!std::filesystem::exists(file())) return {};
  Replay replay;
  for (const std::string& line : base::split_lines(base::read_file(file()))) {
    if (base::trimmed(line).empty()) continue;
    try {
      replay.add(json::parse(line));
    } catch (const json::exception&) {
      ++unreadable_;
    } catch (const base::Error&) {
      ++unreadable_;
    }
  }
  return replay.take();
}

std::string jobs_folder() {
  const std::string home = base::environment("HOME").value_or("");
  return base::environment("XDG_STATE_HOME").value_or(home + "/.local/state") + "/lockstep/jobs";
}

bool has_job(const Ledger& ledger, const std::string& wanted) {
  const std::vector<Submitted> jobs = ledger.jobs();
  return std::any_of(jobs.begin(), jobs.end(),
                     [&](const Submitted& job) { return job.id == wanted || job.name == wanted; });
}

Submitted find_job(const Ledger& ledger, const std::string& wanted) {
  std::vector<Submitted> jobs = ledger.jobs();
  std::vector<std::string> known;
  for (auto job = jobs.rbegin(); job != jobs.rend(); ++job) {
    if (job->id == wanted || job->name == wanted) return *job;
    known.push_back(job->id);
  }
  const std::string near = base::nearest_word(wanted, known);
  throw base::ConfigError(725,
                          fmt::format("no job is called {}; {}", base::quoted(wanted),
                                      !near.empty() ? "did you mean " + near + "?"
                                                    : "`lockstep jobs` lists those submitted from here"));
}

}  // namespace lockstep::jobs
