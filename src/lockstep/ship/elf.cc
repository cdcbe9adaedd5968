#include "lockstep/ship/elf.h"

#include <elf.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <string_view>

#include "lockstep/base/error.h"
#include "lockstep/base/number.h"

namespace lockstep::ship {

namespace {

// Every read is held against the file's end.
class Reader {
 public:
  Reader(std::span<const std::byte> bytes, const std::string& name) : bytes_(bytes), name_(name) {}

  [[noreturn]] void refuse(const char* why) const {
    throw base::DataError(751, fmt::format("{} {}: install the program again", name_, why));
  }
  template <class T>
  T at(uint64_t offset) const {
    T value;
    if (offset > bytes_.size() || bytes_.size() - offset < sizeof value) refuse("is truncated");
    std::memcpy(&value, bytes_.data() + offset, sizeof value);
    return value;
  }
  std::string_view text(uint64_t offset) const {
    if (offset >= bytes_.size()) refuse("is truncated");
    const auto* begin = reinterpret_cast<const char*>(bytes_.data()) + offset;
    return {begin, ::strnlen(begin, bytes_.size() - offset)};
  }

 private:
  std::span<const std::byte> bytes_;
  const std::string& name_;
};

struct Tables {
  std::vector<Elf64_Phdr> segments;
  std::vector<Elf64_Dyn> dynamic;
};

Tables read_tables(const Reader& file) {
  const auto header = file.at<Elf64_Ehdr>(0);
  const bool known = std::memcmp(header.e_ident, ELFMAG, SELFMAG) == 0 &&
                     header.e_ident[EI_CLASS] == ELFCLASS64 && header.e_ident[EI_DATA] == ELFDATA2LSB;
  if (!known) file.refuse("is no program or library of this kind of machine");
  Tables tables;
  for (int k = 0; k < header.e_phnum; ++k)
    tables.segments.push_back(
        file.at<Elf64_Phdr>(header.e_phoff + static_cast<uint64_t>(k) * sizeof(Elf64_Phdr)));
  for (const Elf64_Phdr& segment : tables.segments) {
    if (segment.p_type != PT_DYNAMIC) continue;
    for (uint64_t at = 0; at + sizeof(Elf64_Dyn) <= segment.p_filesz; at += sizeof(Elf64_Dyn)) {
      tables.dynamic.push_back(file.at<Elf64_Dyn>(segment.p_offset + at));
      if (tables.dynamic.back().d_tag == DT_NULL) break;
    }
  }
  return tables;
}

// Where an address of the running program lies in the file.
uint64_t offset_of(const Tables& tables, uint64_t address, const Reader& file) {
  for (const Elf64_Phdr& segment : tables.segments) {
    if (segment.p_type == PT_LOAD && address >= segment.p_vaddr &&
        address - segment.p_vaddr < segment.p_filesz)
      return segment.p_offset + (address - segment.p_vaddr);
  }
  file.refuse("has an address outside of its segments");
}

std::optional<uint64_t> value_of(const Tables& tables, int64_t tag) {
  for (const Elf64_Dyn& entry : tables.dynamic) {
    if (entry.d_tag == tag) return entry.d_un.d_val;
  }
  return std::nullopt;
}

// "GLIBC_2.34" with prefix "GLIBC_2.": 34.
void raise(Version& version, std::string_view name, std::string_view prefix, int major) {
  if (!name.starts_with(prefix)) return;
  name.remove_prefix(prefix.size());
  if (const auto minor = base::take_number(name))
    version = std::max(version, Version{major, static_cast<int>(*minor)});
}

void read_versions(const Reader& file, const Tables& tables, uint64_t texts, Elf& elf) {
  const auto address = value_of(tables, DT_VERNEED);
  const auto count = value_of(tables, DT_VERNEEDNUM);
  if (!address || !count) return;
  uint64_t at = offset_of(tables, *address, file);
  for (uint64_t k = 0; k < *count; ++k) {
    const auto from = file.at<Elf64_Verneed>(at);
    uint64_t one = at + from.vn_aux;
    for (int j = 0; j < from.vn_cnt; ++j) {
      const auto version = file.at<Elf64_Vernaux>(one);
      raise(elf.glibc, file.text(texts + version.vna_name), "GLIBC_2.", 2);
      raise(elf.cxx, file.text(texts + version.vna_name), "GLIBCXX_3.4.", 4);
      one += version.vna_next;
    }
    if (from.vn_next == 0) break;
    at += from.vn_next;
  }
}

}  // namespace

Elf read_elf(std::span<const std::byte> bytes, const std::string& name) {
  const Reader file(bytes, name);
  const Tables tables = read_tables(file);
  Elf elf;
  const auto strings = value_of(tables, DT_STRTAB);
  if (!strings) return elf;  // linked statically
  const uint64_t texts = offset_of(tables, *strings, file);
  for (const Elf64_Dyn& entry : tables.dynamic) {
    if (entry.d_tag == DT_NEEDED) elf.needed.emplace_back(file.text(texts + entry.d_un.d_val));
    if (entry.d_tag != DT_RPATH && entry.d_tag != DT_RUNPATH) continue;
    elf.path_offset = texts + entry.d_un.d_val;
    elf.search_path = file.text(elf.path_offset);
  }
  read_versions(file, tables, texts, elf);
  return elf;
}

bool looks_elsewhere(const Elf& elf) {
  for (std::string_view rest = elf.search_path; !rest.empty();) {
    const std::string_view one = rest.substr(0, rest.find(':'));
    if (!one.empty() && !one.starts_with("$ORIGIN")) return true;
    rest.remove_prefix(std::min(rest.size(), one.size() + 1));
  }
  return false;
}

bool set_search_path(std::span<std::byte> bytes, const Elf& elf, const std::string& path) {
  if (path.size() > elf.search_path.size()) return false;
  auto* at = reinterpret_cast<char*>(bytes.data()) + elf.path_offset;
  std::memset(at, 0, elf.search_path.size());
  std::memcpy(at, path.data(), path.size());
  return true;
}

}  // namespace lockstep::ship
