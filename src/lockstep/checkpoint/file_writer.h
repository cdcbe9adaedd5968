// Writes one file of a checkpoint: in large pieces, summed on the way, on the disk when finish() returns.
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

#include "lockstep/checkpoint/checksum.h"
#include "lockstep/checkpoint/safetensors.h"

namespace lockstep::checkpoint {

class FileWriter {
 public:
  static FileWriter create(const std::string& path);  // replaces a file that stands there
  ~FileWriter();
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;

  void append(std::span<const std::byte> bytes);
  void append(std::string_view text);
  FileSummary finish();  // syncs file and folder

 private:
  FileWriter(const std::string& path, int file);
  void write_piece(std::span<const std::byte> piece);

  std::string path_;
  int file_;
  bool remove_ = false;          // the file is ours to remove if we do not finish
  std::vector<std::byte> rest_;  // less than a piece, waits for more
  int64_t bytes_ = 0;            // written
  Checksum sum_;
};

FileSummary write_text(const std::string& path, std::string_view text);

// Makes a folder's entries survive a power cut.
void sync_folder(const std::string& path);

}  // namespace lockstep::checkpoint
