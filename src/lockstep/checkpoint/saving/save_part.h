// One rank's part of a save: its pieces, written to their places in the files of the plan.
//
// Files are written by many ranks at once, each its own bytes: every whole tensor ends in one file that
// others read, and nobody has to gather it. What a rank did travels to the first rank as a message.
#pragma once

#include <atomic>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/checkpoint/chunk_sums.h"
#include "lockstep/checkpoint/formats/shards.h"
#include "lockstep/checkpoint/params_hash.h"
#include "lockstep/checkpoint/saving/disk.h"

namespace lockstep::checkpoint {

// What a rank wrote: checksums of its bytes and hashes of its weights.
struct Part {
  std::vector<ChunkSums> files;  // one for each file of the plan
  HashSums hashes;
  int64_t bytes = 0;
  int error = 0;  // the number of what went wrong, and the sentence
  std::string why;

  explicit Part(const std::vector<PlannedFile>& plan);
  void merge(const Part& other);
  std::string message() const;
};
Part read_part(const std::string& message, const std::vector<PlannedFile>& plan);

// Where the bytes of each piece lie in the memory that holds them all, and its size.
std::vector<int64_t> piece_offsets(const std::vector<Piece>& pieces, int64_t& total);

class PartWriter {
 public:
  PartWriter(const std::vector<PlannedFile>& plan, const std::vector<Whole>& tensors,
             const std::vector<Piece>& pieces, const Disk& disk);
  // Only the sums; writes nothing.
  Part sum(std::span<const std::byte> memory) const;
  // Into files of these sizes in the folder, which stand there; on the disk when it returns. IoError 807,
  // 808; IoError 814 when `stop` is set meanwhile.
  Part write(const std::string& folder, std::span<const std::byte> memory,
             const std::atomic<bool>& stop) const;

 private:
  // A run of a piece: where it lies in the file and in memory.
  struct Place {
    size_t file;
    int64_t at, from, bytes;
    int64_t tensor;  // for its hash; -1: not hashed
    device::DType type;
    int64_t element;
  };
  HashSums hash(std::span<const std::byte> memory) const;
  template <class Action>
  void each_chunk(std::span<const std::byte> memory, const Place& place, Part& part, Action action) const;

  const std::vector<PlannedFile>& plan_;
  const Disk& disk_;
  std::vector<Place> places_;  // by file and byte
};

}  // namespace lockstep::checkpoint
