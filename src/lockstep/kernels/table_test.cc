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
  EXPECT_NE(kernels().attention_part_workspace, nullptr);
  EXPECT_NE(kernels().embedding_workspace, nullptr);
  EXPECT_NE(kernels().attention_engine, nullptr);
  EXPECT_NE(kernels().attention_part_engine, nullptr);
}

// Here and not beside the device, since this is where every device is met.
TEST_P(TableTest, DeviceCopiesRowsOfAnyPitch) {
  const Memory from = upload_ints({1, 2, 3, 4, 5, 6, 7, 8, 9}), to = upload_ints({0, 0, 0, 0, 0, 0, 0, 0});
  device().copy_rows(to.as<int32_t>() + 1, 12, from.as<int32_t>() + 1, 16, 8, 2, nullptr);
  device().copy_rows(to.as<int32_t>() + 7, 0, from.data(), 0, 4, 1, nullptr);  // a single row has no pitch
  device().copy_rows(to.data(), 4, from.data(), 4, 4, 0, nullptr);
  device().copy_rows(to.data(), 4, from.data(), 4, 0, 3, nullptr);
  EXPECT_EQ(to.bytes(), upload_ints({0, 2, 3, 0, 6, 7, 0, 1}).bytes());
}

TEST_P(TableTest, MarksReachTheHost) {
  auto* word = static_cast<uint32_t*>(device().allocate_host(sizeof(uint32_t)));
  *word = 0;
  kernels().mark({word, 7}, launch());
  device().synchronize(nullptr);
  EXPECT_EQ(*word, 7u);
  device().free_host(word);
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
