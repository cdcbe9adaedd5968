#include "lockstep/base/mapped_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep::base {
namespace {

namespace fs = std::filesystem;

class MappedFileTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(testing::TempDir()) / ("mapped_file_" + std::to_string(getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& content) {
    const fs::path path = folder_ / name;
    std::ofstream(path, std::ios::binary) << content;
    return path.string();
  }

  fs::path folder_;
};

TEST_F(MappedFileTest, HoldsTheBytes) {
  const std::string content("a\0b\nc", 5);
  const MappedFile file = MappedFile::open(write("five", content));
  EXPECT_EQ(file.size(), 5);
  EXPECT_EQ(file.text(), content);
}

TEST_F(MappedFileTest, AnEmptyFileIsAnEmptySpan) {
  const MappedFile file = MappedFile::open(write("empty", ""));
  EXPECT_EQ(file.size(), 0);
  EXPECT_TRUE(file.bytes().empty());
}

TEST_F(MappedFileTest, MovesWithoutUnmapping) {
  MappedFile first = MappedFile::open(write("moved", "still here"));
  MappedFile second(std::move(first));
  EXPECT_EQ(second.text(), "still here");
  MappedFile third;
  third = std::move(second);
  EXPECT_EQ(third.text(), "still here");
}

TEST_F(MappedFileTest, ReadsWhatIsThereAndMissesWhatIsNot) {
  const std::string path = write("shrinks", std::string(10'000, 'x') + "end");
  MappedFile opened = MappedFile::open(path);
  const MappedFile file(std::move(opened));
  std::string out(3, ' ');
  file.read(10'000, std::as_writable_bytes(std::span(out)));
  EXPECT_EQ(out, "end");
  fs::resize_file(path, 10'001);
  try {
    file.read(10'000, std::as_writable_bytes(std::span(out)));
    ADD_FAILURE() << "was read";
  } catch (const DataError& error) {
    EXPECT_EQ(error.number(), 817);
    EXPECT_NE(std::string(error.what()).find("ends at byte 10001"), std::string::npos) << error.what();
  }
}

TEST_F(MappedFileTest, SaysWhatIsWrong) {
  const std::string pipe = (folder_ / "pipe").string();
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const struct {
    std::string path;
    int number;
  } rows[] = {{(folder_ / "absent").string(), 810}, {folder_.string(), 812}, {pipe, 812}, {"/dev/null", 812}};
  for (const auto& row : rows) {
    try {
      MappedFile::open(row.path);
      ADD_FAILURE() << row.path << " was mapped";
    } catch (const Error& error) {
      EXPECT_EQ(error.number(), row.number) << error.what();
      EXPECT_NE(std::string(error.what()).find(row.path), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace lockstep::base
