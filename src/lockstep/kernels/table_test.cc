#include "lockstep/kernels/table.h"

#include "lockstep/kernels/testing.h"

namespace lockstep::kernels::testing {
namespace {

class TableTest : public KernelTest {};

TEST_P(TableTest, EveryRowIsFilled) {
#define ROW(name, Arguments) EXPECT_NE(kernels().name, nullptr) << #name;
  LOCKSTEP_KERNELS(ROW)
#undef ROW
  EXPECT_NE(kernels().gemm_workspace, nullptr);
  EXPECT_NE(kernels().attention_workspace, nullptr);
  EXPECT_NE(kernels().embedding_workspace, nullptr);
}

LOCKSTEP_ON_EVERY_DEVICE(TableTest);

#if defined(__x86_64__)
TEST(Table, IsThatOfTheProcessor) {
  const bool v4 = device::cpu_level() == device::CpuLevel::v4;
  EXPECT_EQ(&kernels_for(device::Kind::cpu), v4 ? &cpu_v4::table() : &cpu_v3::table());
}
#endif

TEST(Launch, PartsCoverEveryRowOnceInOrder) {
  for (const int64_t rows : {0, 1, 63, 64, 65, 1000, 16384, 100000}) {
    const int64_t parts = row_parts(rows);
    EXPECT_EQ(part_begin(rows, parts, 0), 0);
    EXPECT_EQ(part_begin(rows, parts, parts), rows);
    for (int64_t part = 0; part < parts; ++part) {
      EXPECT_LE(part_begin(rows, parts, part), part_begin(rows, parts, part + 1)) << rows;
    }
  }
}

}  // namespace
}  // namespace lockstep::kernels::testing
