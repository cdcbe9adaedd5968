// TensorBoard's event files: records of a length, its checksum, a message and its checksum.
//
// A run that restarts says so with a session's start: TensorBoard then forgets what it read of later steps,
// so that curves do not run back.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <span>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/checkpoint/crc32c.h"
#include "lockstep/see/proto.h"
#include "lockstep/see/sink.h"

namespace lockstep::see {

namespace {

// Field numbers of tensorflow's event.proto and summary.proto, and of TensorBoard's hparams plugin.
namespace event {
constexpr int kWallTime = 1, kStep = 2, kVersion = 3, kSummary = 5, kSession = 7;
}
namespace value {
constexpr int kTag = 1, kSimple = 2, kHistogram = 5, kTensor = 8, kMetadata = 9;
}
namespace histogram {
constexpr int kMin = 1, kMax = 2, kCount = 3, kSum = 4, kSquares = 5, kLimits = 6, kBuckets = 7;
}

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string masked_crc(std::string_view bytes) {
  const uint32_t crc = checkpoint::crc32c(std::as_bytes(std::span(bytes)));
  uint32_t masked = ((crc >> 15) | (crc << 17)) + 0xA282EAD8U;
  std::string out;
  for (int i = 0; i < 4; ++i, masked >>= 8) out += static_cast<char>(masked & 0xFF);
  return out;
}

Proto plugin(const char* name, const Proto& content) {
  Proto data, metadata;
  data.text(1, name);
  if (!content.bytes().empty()) data.message(2, content);
  return metadata.message(1, data);
}

// A number where the text is one.
Proto hparam(const std::string& text) {
  Proto value;
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  if (text == "true" || text == "false") return value.number(4, text == "true");
  if (!text.empty() && *end == '\0') return value.real64(2, number);
  const bool quoted = text.size() >= 2 && text.front() == '"' && text.back() == '"';
  return value.text(3, quoted ? text.substr(1, text.size() - 2) : text);
}

class Tensorboard final : public Sink {
 public:
  Tensorboard(const std::string& folder, const SinkRun& run) {
    base::make_folders(folder);
    char host[256] = "localhost";
    static_cast<void>(::gethostname(host, sizeof(host) - 1));
    const auto now = static_cast<int64_t>(seconds_now());
    path_ = fmt::format("{}/events.out.tfevents.{}.{}.{}", folder, now, host, ::getpid());
    file_ = std::fopen(path_.c_str(), "wb");
    check(file_ != nullptr);
    write(Proto().real64(event::kWallTime, seconds_now()).text(event::kVersion, "brain.Event:2"));
    if (!run.recipe.empty()) write_text("recipe", "```\n" + run.recipe + "\n```");
    if (!run.keys.empty()) write_hparams(run);
  }
  ~Tensorboard() override {
    if (file_ != nullptr) std::fclose(file_);
  }
  Tensorboard(const Tensorboard&) = delete;
  Tensorboard& operator=(const Tensorboard&) = delete;

  void row(const LogRow& row) override {
    Proto summary;
    for (const auto& [name, number] : row.values) {
      summary.message(1, Proto().text(value::kTag, name).real32(value::kSimple, static_cast<float>(number)));
    }
    if (summary.bytes().empty()) return;
    write(Proto()
              .real64(event::kWallTime, row.seconds)
              .number(event::kStep, row.step)
              .message(event::kSummary, summary));
  }
  // Each bucket is known by its upper end. Sums are those of the buckets' middles: TensorBoard shows neither.
  void histogram(const HistogramRow& row) override {
    Proto one;
    std::vector<double> limits(row.edges.begin() + 1, row.edges.end());
    if (!limits.empty()) limits.back() = std::max(limits.back(), row.largest);
    double sum = 0, squares = 0;
    for (size_t i = 0; i < row.counts.size(); ++i) {
      const double middle = (row.edges[i] + row.edges[i + 1]) / 2;
      sum += row.counts[i] * middle, squares += row.counts[i] * middle * middle;
    }
    one.real64(histogram::kMin, row.smallest).real64(histogram::kMax, row.largest);
    one.real64(histogram::kCount, row.count)
        .real64(histogram::kSum, sum)
        .real64(histogram::kSquares, squares);
    one.reals64(histogram::kLimits, limits).reals64(histogram::kBuckets, row.counts);
    const std::string tag = "gradient/" + row.block;
    write(Proto()
              .real64(event::kWallTime, row.seconds)
              .number(event::kStep, row.step)
              .message(event::kSummary,
                       Proto().message(1, Proto().text(value::kTag, tag).message(value::kHistogram, one))));
  }
  void rewind(int64_t step) override {
    constexpr int kStart = 1;
    write(Proto()
              .real64(event::kWallTime, seconds_now())
              .number(event::kStep, step + 1)
              .message(event::kSession, Proto().number(1, kStart)));
  }
  void flush() override { check(std::fflush(file_) == 0); }

 private:
  void write_text(const std::string& tag, const std::string& text) {
    constexpr int kString = 7;
    Proto tensor;
    tensor.number(1, kString).message(2, Proto().message(2, Proto().number(1, 1))).text(8, text);
    write_value(Proto()
                    .text(value::kTag, tag + "/text_summary")
                    .message(value::kTensor, tensor)
                    .message(value::kMetadata, plugin("text", {})));
  }
  void write_hparams(const SinkRun& run) {
    Proto start;
    for (const auto& [key, text] : run.keys) start.message(1, Proto().text(1, key).message(2, hparam(text)));
    start.text(4, run.name).real64(5, seconds_now());
    const Proto content = Proto().message(3, start);
    constexpr int kFloat = 1;
    const Proto nothing = Proto().number(1, kFloat).message(2, Proto());  // a scalar without a value
    write_value(Proto()
                    .text(value::kTag, "_hparams_/session_start_info")
                    .message(value::kTensor, nothing)
                    .message(value::kMetadata, plugin("hparams", content)));
  }
  void write_value(const Proto& one) {
    write(Proto().real64(event::kWallTime, seconds_now()).message(event::kSummary, Proto().message(1, one)));
  }
  void write(const Proto& message) {
    std::string length;
    for (uint64_t i = 0, size = message.bytes().size(); i < 8; ++i, size >>= 8)
      length += static_cast<char>(size & 0xFF);
    const std::string record = length + masked_crc(length) + message.bytes() + masked_crc(message.bytes());
    check(std::fwrite(record.data(), 1, record.size(), file_) == record.size());
  }
  void check(bool written) const {
    if (!written)
      throw base::IoError(763, fmt::format("{} cannot be written: {}", path_, std::strerror(errno)));
  }

  std::string path_;
  std::FILE* file_ = nullptr;
};

}  // namespace

std::unique_ptr<Sink> open_tensorboard(const std::string& out, const SinkRun& run) {
  return std::make_unique<Tensorboard>(out + "/" + run.name, run);
}

}  // namespace lockstep::see
