#include "lockstep/checkpoint/saving/file_writer.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>

#include "lockstep/base/file.h"
#include "lockstep/base/temporary_folder.h"
#include "lockstep/checkpoint/testing.h"

namespace lockstep::checkpoint {
namespace {

constexpr auto kChunk = static_cast<size_t>(kChunkBytes);

std::string bytes_of(size_t size) {
  std::string text(size, '\0');
  for (size_t i = 0; i < size; ++i) text[i] = static_cast<char>(i * 2654435761u >> 13);
  return text;
}

TEST(FileWriter, AnyWayOfAppendingGivesTheSameFile) {
  base::TemporaryFolder folder;
  const std::string path = folder.path() + "/x", text = bytes_of(2 * kChunk + 77);
  ChunkSums expected(static_cast<int64_t>(text.size()));
  expected.add(0, std::as_bytes(std::span(text)));
  for (const size_t step : {size_t{1000}, kChunk - 1, kChunk, 2 * kChunk + 77}) {
    FileWriter writer = FileWriter::create(path);
    for (size_t at = 0; at < text.size(); at += step) writer.append(std::string_view(text).substr(at, step));
    const FileSummary summary = writer.finish();
    EXPECT_EQ(summary.name, "x");
    EXPECT_EQ(summary.bytes, static_cast<int64_t>(text.size()));
    EXPECT_EQ(summary.sums, expected.finish()) << step;
    EXPECT_TRUE(base::read_file(path) == text) << step;
  }
  EXPECT_TRUE(write_text(path, "").sums.empty());
}

TEST(FileWriter, UnfinishedLeavesNothing) {
  base::TemporaryFolder folder;
  { FileWriter::create(folder.path() + "/x").append(bytes_of(5'000'000)); }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(FileWriter, FullDiskNamesTheFileAndTheRemedy) {
  const std::string text = refusal(807, [] { write_text("/dev/full", "x"); });
  EXPECT_NE(text.find("/dev/full cannot be written: the disk is full after 0 B; free some space"),
            std::string::npos);
  EXPECT_TRUE(std::filesystem::exists("/dev/full"));  // devices are not ours to remove
}

TEST(FileWriter, RefusedFileIsRemoved) {
  base::TemporaryFolder folder;
  ::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit tight{5'000'000, before.rlim_max};  // the second piece is cut short
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &tight), 0);
  const std::string text = refusal(807, [&] { write_text(folder.path() + "/x", bytes_of(9'000'000)); });
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_NE(text.find("/x cannot be written: the file size limit is reached after 4.8 MiB"),
            std::string::npos)
      << text;
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(FileWriter, OtherRefusalsSayWhy) {
  base::TemporaryFolder folder;
  const std::string text = refusal(808, [&] { write_text(folder.path() + "/no/x", "x"); });
  EXPECT_NE(text.find("/no/x cannot be written: No such file or directory"), std::string::npos) << text;
  refusal(808, [&] { write_text(folder.path(), "x"); });
  refusal(808, [&] { sync_folder(folder.path() + "/no"); });
}

}  // namespace
}  // namespace lockstep::checkpoint
