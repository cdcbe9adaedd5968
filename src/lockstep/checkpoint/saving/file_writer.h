// Writes one file of a checkpoint from its beginning to its end, summed on the way, on the disk when finish()
// returns.
//
// A writer that goes out of scope before finish() succeeded removes its file, so a full disk or an
// exception leaves nothing half-written. IoError 807 when there is no room, 808 when the disk refuses.
//
//     FileWriter file = FileWriter::create(folder + "/config.json");
//     file.append(text);
//     const FileSummary summary = file.finish();
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/checkpoint/chunk_sums.h"
#include "lockstep/checkpoint/formats/safetensors.h"
#include "lockstep/checkpoint/saving/disk.h"
#include "lockstep/checkpoint/saving/range_writer.h"

namespace lockstep::checkpoint {

class FileWriter {
 public:
  static FileWriter create(const std::string& path, const Disk& disk = system_disk());  // replaces a file
  ~FileWriter();
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;

  void append(std::span<const std::byte> bytes);
  void append(std::string_view text);
  FileSummary finish();  // syncs file and folder

 private:
  FileWriter(const std::string& path, int file, const Disk& disk);
  void write_chunk(std::span<const std::byte> chunk);

  std::string path_;
  const Disk& disk_;
  int file_;
  bool remove_ = false;          // the file is ours to remove if we do not finish
  std::vector<std::byte> rest_;  // less than a chunk, waits for more
  RangeWriter writer_;
  std::vector<uint32_t> sums_;
};

FileSummary write_text(const std::string& path, std::string_view text, const Disk& disk = system_disk());

// Makes a folder's entries survive a power cut.
void sync_folder(const std::string& path, const Disk& disk = system_disk());

}  // namespace lockstep::checkpoint
