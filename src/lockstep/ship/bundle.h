// Everything that the program needs, as one file for machines without a network: `lockstep bundle`.
//
//     lockstep-0.1.0/bin/lockstep -> ../lockstep/bin/lockstep
//     lockstep-0.1.0/lockstep/bin/lockstep         this program
//     lockstep-0.1.0/lockstep/lib/                 its libraries
//     lockstep-0.1.0/torch/lib/, nvidia/*/lib/, pyarrow/    what they need of LibTorch, CUDA and Arrow
//
// Unpacked anywhere, by anybody: files find each other by where they lie ($ORIGIN). Which libraries are
// needed is read from the files themselves, and so is how new the C library of such a machine must be.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/ship/elf.h"

namespace lockstep::ship {

struct BundleFile {
  std::string name;  // in the archive, below its first folder
  std::string from;  // on this machine
  bool program = false;
};

struct BundlePlan {
  std::string folder;  // "lockstep-0.1.0"
  std::vector<BundleFile> files;
  std::vector<std::string> system;  // libraries that every machine is expected to have: of C and C++
  Version glibc = {0, 0};           // the newest that any file asks for
  std::string glibc_for;            // the file that asks for it
  Version cxx = {0, 0};             // the newest GLIBCXX_3.4.y, as {4, y}
  int64_t bytes = 0;
};

struct BundleOptions {
  std::string program, library;  // lockstep and liblockstep.so
  std::string site;              // the folder that holds torch/, nvidia/ and pyarrow/
  bool cuda = false;             // CUDA's libraries too
};

// ConfigError 752: the CUDA half is not built, or a library is missing.
BundlePlan plan_bundle(const BundleOptions& options);

struct Written {
  int64_t bytes = 0;
};
Written write_bundle(const BundlePlan& plan, const std::string& out);  // IoError 802

}  // namespace lockstep::ship
