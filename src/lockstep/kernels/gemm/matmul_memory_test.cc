#include "lockstep/kernels/gemm/matmul_memory.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "lockstep/base/temporary_folder.h"

namespace lockstep::kernels {
namespace {

class MatmulMemoryTest : public ::testing::Test {
 protected:
  MatmulMemoryTest() { ::setenv("LOCKSTEP_CACHE", folder_.path().c_str(), 1); }
  ~MatmulMemoryTest() override { ::unsetenv("LOCKSTEP_CACHE"); }
  std::string file() const {
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path())) return entry.path();
    return "";
  }
  base::TemporaryFolder folder_;
};

TEST_F(MatmulMemoryTest, RemembersAcrossProcesses) {
  MatmulMemory first("GPU A 1");
  EXPECT_EQ(first.find("768x768"), std::nullopt);
  first.remember("768x768", 3);
  first.remember("12x12", 1);
  first.remember("768x768", 5);  // measured again: the last one counts
  const MatmulMemory second("GPU A 1"), other("GPU B 1");
  EXPECT_EQ(second.find("768x768"), 5);
  EXPECT_EQ(second.find("12x12"), 1);
  EXPECT_EQ(other.find("768x768"), std::nullopt);
}

TEST_F(MatmulMemoryTest, ForgetsLinesThatItDidNotWrite) {
  MatmulMemory("GPU").remember("a", 3);
  std::string good = base::read_file(file());
  for (const std::string& bad : {std::string("a 4 0000000000000000"), std::string("a"), std::string(),
                                 std::string("a 999999999999999 x"), std::string(100000, 'x'),
                                 std::string("\0 \0 \0", 5), good.substr(0, good.size() - 3)}) {
    base::write_file_durable(file(), bad);
    EXPECT_EQ(MatmulMemory("GPU").find("a"), std::nullopt) << bad.substr(0, 40);
    base::write_file_durable(file(), bad + "\n" + good);
    EXPECT_EQ(MatmulMemory("GPU").find("a"), 3) << bad.substr(0, 40);
  }
}

TEST_F(MatmulMemoryTest, LivesWithoutADisk) {
  ::setenv("LOCKSTEP_CACHE", "/proc/no/such/folder", 1);
  MatmulMemory memory("GPU");
  memory.remember("a", 3);
  EXPECT_EQ(memory.find("a"), 3);
  ::setenv("LOCKSTEP_CACHE", "none", 1);
  EXPECT_EQ(cache_folder(), "");
  EXPECT_EQ(MatmulMemory("GPU").find("a"), std::nullopt);
}

}  // namespace
}  // namespace lockstep::kernels
