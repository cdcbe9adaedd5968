// A tar archive that is written as it grows; its name says how it is compressed: .tar, .tar.gz, .tar.zst.
//
//     Archive archive("lockstep.tar.zst");
//     archive.add_file("lockstep/bin/lockstep", bytes, 0755);
//     archive.add_link("lockstep/run", "bin/lockstep");
//     archive.finish();                    // without it no file remains
//
// The same content gives the same bytes: everything belongs to root and is as old as 1980.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace lockstep::ship {

class Archive {
 public:
  // ConfigError 750 for another ending; IoError 802 when it cannot be written.
  explicit Archive(const std::string& path);
  ~Archive();
  Archive(const Archive&) = delete;
  Archive& operator=(const Archive&) = delete;

  void add_file(const std::string& name, std::span<const std::byte> bytes, int mode);
  void add_link(const std::string& name, const std::string& target);
  int64_t finish();  // bytes that it has on disk

 private:
  class Sink;
  void add_header(const std::string& name, const std::string& target, int64_t size, int mode, char kind);
  std::unique_ptr<Sink> sink_;
};

}  // namespace lockstep::ship
