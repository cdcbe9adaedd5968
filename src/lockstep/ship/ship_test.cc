// Archives and what ELF files say, on files of our own and on damaged ones.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <random>

#include "lockstep/base/file.h"
#include "lockstep/base/mapped_file.h"
#include "lockstep/base/refusal.h"
#include "lockstep/base/temporary_folder.h"
#include "lockstep/ship/archive.h"
#include "lockstep/ship/bundle.h"
#include "lockstep/ship/elf.h"
#include "lockstep/ship/image.h"

namespace lockstep::ship {
namespace {

std::vector<std::byte> own_bytes() {
  const base::MappedFile file =
      base::MappedFile::open(std::filesystem::read_symlink("/proc/self/exe").string());
  return {file.bytes().begin(), file.bytes().end()};
}

TEST(ElfFile, SaysWhatThisProgramNeeds) {
  const Elf elf = read_elf(own_bytes(), "test");
  EXPECT_NE(std::find(elf.needed.begin(), elf.needed.end(), "libc.so.6"), elf.needed.end());
  EXPECT_NE(std::find(elf.needed.begin(), elf.needed.end(), "liblockstep.so"), elf.needed.end());
  EXPECT_GE(elf.glibc, (Version{2, 2}));
  EXPECT_TRUE(looks_elsewhere(elf)) << elf.search_path;
}

TEST(ElfFile, AnotherSearchPathReplacesTheOldOne) {
  std::vector<std::byte> bytes = own_bytes();
  const Elf before = read_elf(bytes, "test");
  EXPECT_FALSE(set_search_path(bytes, before, std::string(before.search_path.size() + 1, 'x')));
  ASSERT_TRUE(set_search_path(bytes, before, "$ORIGIN/../lib"));
  const Elf after = read_elf(bytes, "test");
  EXPECT_EQ(after.search_path, "$ORIGIN/../lib");
  EXPECT_EQ(after.needed, before.needed);
  EXPECT_FALSE(looks_elsewhere(after));
}

TEST(ElfFile, DamageIsAnErrorAndNoCrash) {
  EXPECT_NE(base::refusal(751, [] { read_elf({}, "empty"); }).find("empty"), std::string::npos);
  const std::vector<std::byte> whole = own_bytes();
  std::mt19937 random(7);
  for (int k = 0; k < 300; ++k) {
    std::vector<std::byte> bytes(whole.begin(),
                                 whole.begin() + std::min<long>(8192, static_cast<long>(whole.size())));
    if (k % 3 == 0) bytes.resize(random() % bytes.size());
    for (int flips = 0; flips < 16 && !bytes.empty(); ++flips)
      bytes[random() % bytes.size()] = std::byte(random() & 255);
    try {
      read_elf(bytes, "damaged");
    } catch (const base::DataError& error) {
      EXPECT_EQ(error.number(), 751);
    }
  }
}

TEST(ArchiveFile, IsWhatTarReads) {
  const base::TemporaryFolder folder;
  const std::string text(1000, 'x');
  const std::span<const std::byte> bytes = std::as_bytes(std::span(text));
  for (const char* ending : {".tar", ".tar.gz", ".tar.zst"}) {
    const std::string path = folder.path() + "/a" + ending;
    Archive archive(path);
    archive.add_file("top/bin/file", bytes, 0755);
    archive.add_file("top/empty", {}, 0644);
    archive.add_link("top/link", "bin/file");
    EXPECT_FALSE(std::filesystem::exists(path)) << "only when it is whole";
    const int64_t bytes_on_disk = archive.finish();
    EXPECT_EQ(bytes_on_disk, static_cast<int64_t>(std::filesystem::file_size(path)));
    if (std::string(ending) == ".tar.zst" && std::system("command -v zstd >/dev/null") != 0) continue;
    const std::string out = folder.path() + "/out" + ending;
    std::filesystem::create_directories(out);
    ASSERT_EQ(std::system(("tar -xf " + path + " -C " + out).c_str()), 0) << ending;
    EXPECT_EQ(base::read_file(out + "/top/link"), text);
    EXPECT_EQ(std::filesystem::file_size(out + "/top/empty"), 0u);
    EXPECT_NE(
        std::filesystem::status(out + "/top/bin/file").permissions() & std::filesystem::perms::owner_exec,
        std::filesystem::perms::none);
  }
  EXPECT_NE(base::refusal(750, [&] { Archive other(folder.path() + "/a.zip"); }).find(".tar.zst"),
            std::string::npos);
  { Archive left(folder.path() + "/left.tar"); }
  EXPECT_FALSE(std::filesystem::exists(folder.path() + "/left.tar.part"));
}

TEST(Image, HasABaseAsNewAsTheProgramNeeds) {
  EXPECT_EQ(base_image({2, 34}), "debian:12.11-slim");
  EXPECT_EQ(base_image({2, 38}), "debian:13.1-slim");
  EXPECT_FALSE(base::refusal(753, [] { base_image({2, 99}); }).empty());
  const std::string gpu =
      dockerfile({.bundle = "b.tar.gz", .folder = "lockstep-1", .glibc = {2, 34}, .cuda = true});
  EXPECT_NE(gpu.find("NVIDIA_VISIBLE_DEVICES"), std::string::npos);
  EXPECT_NE(gpu.find("\nUSER 1000:1000\n"), std::string::npos);
  EXPECT_EQ(dockerfile({.bundle = "b.tar.gz", .folder = "f", .glibc = {2, 34}}).find("NVIDIA"),
            std::string::npos);
}

}  // namespace
}  // namespace lockstep::ship
