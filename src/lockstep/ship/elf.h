// What a program or library (ELF, 64 bits, little-endian) says of itself: what it needs, where it looks for
// it, and how new the C library must be.
//
//     const Elf elf = read_elf(bytes);            // DataError 751 where it is no such file
//     elf.needed                                  // {"libtorch_cpu.so", "libc.so.6"}
//     set_search_path(bytes, elf, "$ORIGIN/../lib");
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::ship {

using Version = std::pair<int, int>;  // {2, 34}

struct Elf {
  std::vector<std::string> needed;  // DT_NEEDED
  std::string search_path;          // DT_RPATH or DT_RUNPATH
  size_t path_offset = 0;           // where that stands in the file
  Version glibc = {0, 0};           // the newest GLIBC_x.y that it asks for
  Version cxx = {0, 0};             // the newest GLIBCXX_3.4.y, as {4, y}
};

// `name` is for errors.
Elf read_elf(std::span<const std::byte> bytes, const std::string& name);

// Whether the search path names folders of one machine: anything but $ORIGIN.
bool looks_elsewhere(const Elf& elf);

// Writes another search path over the old one, which must be at least as long: false where it is not.
bool set_search_path(std::span<std::byte> bytes, const Elf& elf, const std::string& path);

}  // namespace lockstep::ship
