#include "lockstep/checkpoint/saving/save_part.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/round.h"
#include "lockstep/base/threads.h"
#include "lockstep/checkpoint/formats/widen.h"
#include "lockstep/checkpoint/saving/range_writer.h"
#include "lockstep/device/thread_pool.h"

namespace lockstep::checkpoint {
namespace {

using Json = nlohmann::json;

constexpr int64_t kMemoryAlignment = 256;
constexpr auto kPatience = std::chrono::seconds(10);  // for a file that the first rank made to show here

template <class T>
Json binary_of(const std::vector<T>& values) {
  std::vector<uint8_t> bytes(values.size() * sizeof(T));
  if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return Json::binary(std::move(bytes));
}

template <class T>
std::vector<T> values_of(const Json& json) {
  const auto& bytes = json.get_binary();
  std::vector<T> values(bytes.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
  return values;
}

struct HashRow {
  int64_t tensor, chunk;
  uint64_t sums[2];
};
struct SumRow {
  int64_t file, chunk;
  uint64_t remainder;
};

// An open file of the plan that is closed in any case.
class OpenFile {
 public:
  OpenFile(const Disk& disk, std::string path) : disk_(disk), path_(std::move(path)) {
    const auto until = std::chrono::steady_clock::now() + kPatience;
    // Network file systems may show a new file to other hosts a little later.
    while ((file_ = disk.open_to_write(path_)) == -ENOENT && std::chrono::steady_clock::now() < until)
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    check_disk(file_, path_);
  }
  ~OpenFile() {
    if (file_ >= 0) disk_.close(file_);
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  void finish(int64_t written) {
    check_disk(disk_.sync(file_), path_, written);
    check_disk(disk_.close(std::exchange(file_, -1)), path_, written);
  }
  int file() const { return file_; }
  const std::string& path() const { return path_; }

 private:
  const Disk& disk_;
  std::string path_;
  int file_ = -1;
};

}  // namespace

Part::Part(const std::vector<PlannedFile>& plan) {
  for (const PlannedFile& file : plan) files.emplace_back(file.bytes);
}

void Part::merge(const Part& other) {
  for (size_t f = 0; f < files.size(); ++f) {
    for (const auto& [chunk, remainder] : other.files[f].remainders()) files[f].merge(chunk, remainder);
  }
  for (const auto& [chunk, sums] : other.hashes.sums()) hashes.merge(chunk, sums);
  bytes += other.bytes;
}

std::string Part::message() const {
  std::vector<SumRow> sums;
  for (size_t f = 0; f < files.size(); ++f) {
    for (const auto& [chunk, remainder] : files[f].remainders())
      sums.push_back({static_cast<int64_t>(f), chunk, remainder});
  }
  std::vector<HashRow> rows;
  for (const auto& [chunk, s] : hashes.sums())
    rows.push_back({chunk.first, chunk.second, {s.of[0], s.of[1]}});
  const Json json = {{"sums", binary_of(sums)},
                     {"hashes", binary_of(rows)},
                     {"bytes", bytes},
                     {"error", error},
                     {"why", why}};
  const std::vector<uint8_t> packed = Json::to_cbor(json);
  return {packed.begin(), packed.end()};
}

Part read_part(const std::string& message, const std::vector<PlannedFile>& plan) {
  const Json json = Json::from_cbor(message.begin(), message.end());
  Part part(plan);
  for (const SumRow& row : values_of<SumRow>(json.at("sums")))
    part.files.at(static_cast<size_t>(row.file)).merge(row.chunk, static_cast<uint32_t>(row.remainder));
  for (const HashRow& row : values_of<HashRow>(json.at("hashes")))
    part.hashes.merge({row.tensor, row.chunk}, {{row.sums[0], row.sums[1]}});
  part.bytes = json.at("bytes").get<int64_t>();
  part.error = json.at("error").get<int>();
  part.why = json.at("why").get<std::string>();
  return part;
}

std::vector<int64_t> piece_offsets(const std::vector<Piece>& pieces, int64_t& total) {
  std::vector<int64_t> offsets;
  total = 0;
  for (const Piece& piece : pieces) {
    offsets.push_back(total);
    total += base::round_up(piece.bytes(), kMemoryAlignment);
  }
  return offsets;
}

PartWriter::PartWriter(const std::vector<PlannedFile>& plan, const std::vector<Whole>& tensors,
                       const std::vector<Piece>& pieces, const Disk& disk)
    : plan_(plan), disk_(disk) {
  std::map<std::string, std::pair<size_t, int64_t>> begins;  // of each tensor: file, byte
  for (size_t f = 0; f < plan.size(); ++f) {
    for (size_t t = 0; t < plan[f].tensors.size(); ++t)
      begins[plan[f].tensors[t].name] = {f, plan[f].begins[t]};
  }
  std::map<std::string, int64_t> numbers;
  for (size_t t = 0; t < tensors.size(); ++t) numbers[tensors[t].name] = static_cast<int64_t>(t);
  int64_t total = 0;
  const std::vector<int64_t> offsets = piece_offsets(pieces, total);
  for (size_t k = 0; k < pieces.size(); ++k) {
    const Whole& tensor = pieces[k].tensor;
    const auto [file, begin] = begins.at(tensor.name);
    const int64_t size = device::size_of(tensor.dtype);
    const bool hashed = tensor.kind == Kind::weight;
    for (const Run& run : runs_of(pieces[k])) {
      places_.push_back({.file = file,
                         .at = begin + run.at * size,
                         .from = offsets[k] + run.from * size,
                         .bytes = run.count * size,
                         .tensor = hashed ? numbers.at(tensor.name) : -1,
                         .type = tensor.dtype,
                         .element = run.at});
    }
  }
  std::sort(places_.begin(), places_.end(),
            [](const Place& a, const Place& b) { return std::pair(a.file, a.at) < std::pair(b.file, b.at); });
}

HashSums PartWriter::hash(std::span<const std::byte> memory) const {
  HashSums hashes;
  std::vector<float> wide;  // frozen weights may be kept in another type
  for (const Place& place : places_) {
    if (place.tensor < 0) continue;
    const std::byte* const from = memory.data() + place.from;
    if (place.type == device::DType::f32) {
      const auto* values = reinterpret_cast<const float*>(from);
      hashes.add(place.tensor, place.element, {values, static_cast<size_t>(place.bytes) / sizeof(float)});
      continue;
    }
    wide.resize(static_cast<size_t>(place.bytes / device::size_of(place.type)));
    widen(from, place.type, static_cast<int64_t>(wide.size()), wide.data());
    hashes.add(place.tensor, place.element, wide);
  }
  return hashes;
}

// A MiB at a time, so that the bytes are still near when they are written.
template <class Action>
void PartWriter::each_chunk(std::span<const std::byte> memory, const Place& place, Part& part,
                            Action action) const {
  for (int64_t done = 0; done < place.bytes;) {
    const int64_t at = place.at + done;
    const int64_t size = std::min(kChunkBytes - at % kChunkBytes, place.bytes - done);
    const auto bytes = memory.subspan(static_cast<size_t>(place.from + done), static_cast<size_t>(size));
    part.files[place.file].add(at, bytes);
    action(bytes, at);
    done += size;
  }
  part.bytes += place.bytes;
}

Part PartWriter::sum(std::span<const std::byte> memory) const {
  Part part(plan_);
  for (const Place& place : places_) each_chunk(memory, place, part, [](auto&&...) {});
  part.hashes = hash(memory);
  return part;
}

Part PartWriter::write(const std::string& folder, std::span<const std::byte> memory,
                       const std::atomic<bool>& stop) const {
  Part part(plan_);
  std::vector<std::jthread> hashing;  // beside the writing: it costs about as much
  const bool beside = base::add_helper(hashing, [&] {
    device::work_alone();
    part.hashes = hash(memory);
  });
  for (size_t k = 0; k < places_.size();) {
    const size_t number = places_[k].file;
    OpenFile file(disk_, folder + "/" + plan_[number].name);
    RangeWriter writer(disk_, file.file(), file.path());
    for (; k < places_.size() && places_[k].file == number; ++k) {
      each_chunk(memory, places_[k], part, [&](std::span<const std::byte> bytes, int64_t at) {
        if (stop) throw base::IoError(814, "the save was aborted: the run is ending");
        writer.write(bytes, at);
      });
    }
    file.finish(writer.written());
  }
  hashing.clear();
  if (!beside) part.hashes = hash(memory);
  return part;
}

}  // namespace lockstep::checkpoint
