// W&B's offline folder: OUT/offline-run-TIME-ID/run-ID.wandb, which `wandb sync` uploads.
//
// The file is a log of records in LevelDB's form (blocks of 32 KiB, records cut at their ends, a checksum
// each); a record is a message of wandb_internal.proto. A run that restarts cuts its records back to the step
// that still stands.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <ctime>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "lockstep/base/descriptor.h"
#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/hash.h"
#include "lockstep/see/proto.h"
#include "lockstep/see/run_events.h"
#include "lockstep/see/sink.h"

namespace lockstep::see {

namespace {

// Field numbers of wandb_internal.proto.
namespace record {
constexpr int kNumber = 1, kHistory = 2, kSummary = 3, kRun = 17, kExit = 18, kHeader = 21;
}
namespace item {
constexpr int kKey = 1, kValueJson = 16;
}
constexpr const char* kProducer = "0.19.0";  // whose messages these are
constexpr const char* kMinConsumer = "0.12.0";

class LogFile {
 public:
  explicit LogFile(std::string path)
      : path_(std::move(path)), file_(::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644)) {
    check(file_.number >= 0);
    using namespace std::string_literals;
    put(":W&B\xe1\xbe\x00"s);  // name, magic number, version
  }
  int64_t size() const { return size_; }
  void add(const std::string& message) {
    std::string_view left = message;
    bool first = true;
    do {
      const int64_t room = kBlock - size_ % kBlock;
      if (room < kHead) {
        put(std::string(static_cast<size_t>(room), '\0'));
        continue;
      }
      const size_t part = std::min(left.size(), static_cast<size_t>(room - kHead));
      const bool last = part == left.size();
      put_part(first ? (last ? 1 : 2) : (last ? 4 : 3), left.substr(0, part));
      left.remove_prefix(part);
      first = false;
      if (last) return;
    } while (true);
  }
  void cut(int64_t size) {
    check(::ftruncate(file_.number, size) == 0 && ::lseek(file_.number, size, SEEK_SET) == size);
    size_ = size;
  }

 private:
  static constexpr int64_t kBlock = 32 << 10, kHead = 7;
  void put_part(int kind, std::string_view part) {
    const auto type = static_cast<unsigned char>(kind);
    auto crc = static_cast<uint32_t>(::crc32(0, &type, 1));
    crc = static_cast<uint32_t>(::crc32(crc, reinterpret_cast<const unsigned char*>(part.data()),
                                        static_cast<unsigned>(part.size())));
    std::string head;
    for (int i = 0; i < 4; ++i) head += static_cast<char>(crc >> (8 * i));
    head += static_cast<char>(part.size() & 0xFF);
    head += static_cast<char>(part.size() >> 8);
    head += static_cast<char>(type);
    put(head + std::string(part));
  }
  void put(const std::string& bytes) {
    check(::write(file_.number, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
    size_ += static_cast<int64_t>(bytes.size());
  }
  void check(bool written) const {
    if (!written)
      throw base::IoError(763, fmt::format("{} cannot be written: {}", path_, std::strerror(errno)));
  }
  std::string path_;
  base::Descriptor file_;
  int64_t size_ = 0;
};

std::string time_text(const char* form) {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof(text), form, &parts);
  return text;
}

// Numbers and truths as they are, texts without the quotes of TOML.
std::string json_of(const std::string& toml) {
  const nlohmann::json read = nlohmann::json::parse(toml, nullptr, false);
  return (read.is_discarded() ? nlohmann::json(toml) : read)
      .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

Proto key_value(const std::string& key, const std::string& value_json) {
  return Proto().text(item::kKey, key).text(item::kValueJson, value_json);
}

class Wandb final : public Sink {
 public:
  Wandb(const std::string& folder, const std::string& id, const SinkRun& run)
      : log_(folder + "/run-" + id + ".wandb"), run_folder_(run.folder) {
    write(Proto().message(record::kHeader,
                          Proto().message(1, Proto().text(1, kProducer).text(2, kMinConsumer))));
    Proto config;
    for (const auto& [key, value] : run.keys) config.message(1, key_value(key, json_of(value)));
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    const Proto start = Proto().number(1, std::chrono::duration_cast<std::chrono::seconds>(now).count());
    write(Proto().message(record::kRun, Proto()
                                            .text(1, id)
                                            .text(3, "lockstep")
                                            .message(4, config)
                                            .text(8, run.name)
                                            .text(13, base::host_name())
                                            .message(17, start)));
  }
  ~Wandb() override {
    try {
      write_pending();
      const std::vector<RunEvent> events = read_events(run_folder_);
      const bool failed = !events.empty() && ending_of(events.back().name) == "failed";
      write(Proto().message(record::kExit, Proto().number(1, failed ? 1 : 0)));
    } catch (const base::IoError&) {  // a full disk: what was written before is whole
    }
  }

  // W&B takes one row a step: an evaluation joins the step that it follows, which therefore waits for the
  // next.
  void row(const LogRow& row) override {
    if (pending_ && pending_->step == row.step) {
      pending_->values.insert(pending_->values.end(), row.values.begin(), row.values.end());
      return;
    }
    write_pending();
    pending_ = row;
  }
  void rewind(int64_t step) override {
    if (pending_ && pending_->step > step) pending_.reset();
    while (!rows_.empty() && rows_.back().step > step) {
      log_.cut(rows_.back().at);
      number_ -= 2;
      rows_.pop_back();
    }
  }
  void flush() override {}  // each record is with the kernel

 private:
  void write_pending() {
    if (!pending_) return;
    const LogRow row = *std::exchange(pending_, std::nullopt);
    Proto history, summary;
    for (const auto& [name, number] : row.values) {
      const std::string value = std::isfinite(number) ? nlohmann::json(number).dump() : "null";
      history.message(1, key_value(name, value));
      summary.message(1, key_value(name, value));
    }
    history.message(1, key_value("_step", std::to_string(row.step)));
    if (row.seconds > 0) history.message(1, key_value("_timestamp", fmt::format("{:.3f}", row.seconds)));
    history.message(2, Proto().number(1, row.step));
    rows_.push_back({row.step, log_.size()});
    write(Proto().message(record::kHistory, history));
    write(Proto().message(record::kSummary, summary));
  }
  void write(const Proto& message) {
    log_.add(Proto().number(record::kNumber, ++number_).bytes() + message.bytes());
  }
  struct Row {
    int64_t step, at;  // where its first record begins
  };
  LogFile log_;
  const std::string run_folder_;
  std::vector<Row> rows_;
  std::optional<LogRow> pending_;
  int64_t number_ = 0;
};

}  // namespace

std::unique_ptr<Sink> open_wandb(const std::string& out, const SinkRun& run) {
  const std::string id =
      base::hex64(base::hash_text(run.folder + "\n" + run.name + "\n" + run.recipe)).substr(0, 8);
  const std::string folder = fmt::format("{}/offline-run-{}-{}", out, time_text("%Y%m%d_%H%M%S"), id);
  base::make_folders(folder + "/files");
  return std::make_unique<Wandb>(folder, id, run);
}

}  // namespace lockstep::see
