// Files that the reference implementation writes are read by us, and the other way round.
// LOCKSTEP_TEST_PYTHON names a Python that has the packages safetensors and numpy; without one this is
// skipped.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "lockstep/base/temporary_folder.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/testing.h"

namespace lockstep::checkpoint {
namespace {

using device::DType;

constexpr const char* kScript = R"(
import json, os, sys
import numpy
from safetensors import safe_open
from safetensors.numpy import load_file, save_file
ours, theirs = sys.argv[1], sys.argv[2]
with open(os.path.join(ours, "model.safetensors.index.json")) as file:
    index = json.load(file)
copy, total = {}, 0
for name, shard in index["weight_map"].items():
    with safe_open(os.path.join(ours, shard), framework="numpy") as file:
        assert file.metadata() == {"format": "pt"}, file.metadata()
        copy[name] = file.get_tensor(name)
        total += copy[name].nbytes
assert total == index["metadata"]["total_size"], total
assert len(load_file(os.path.join(ours, "optimizer-00001-of-00001.safetensors"))) == 4
copy["half"] = numpy.array([[1, -2.5, 65504]], dtype=numpy.float16)
copy["mask"] = numpy.array([True, False, True])
copy["none"] = numpy.zeros((0, 3), dtype=numpy.float32)
copy["scalar"] = numpy.array(7, dtype=numpy.int64)
save_file(copy, os.path.join(theirs, "model.safetensors"), metadata={"made": "elsewhere"})
)";

bool python_can(const std::string& python, const std::string& script, const std::string& arguments) {
  const std::string quiet = script.starts_with("import safe") ? " 2>/dev/null" : "";
  return std::system(fmt::format("'{}' -c '{}' {}{}", python, script, arguments, quiet).c_str()) == 0;
}

TEST(Python, ReadsOursAndWeReadTheirs) {
  const char* python = std::getenv("LOCKSTEP_TEST_PYTHON");
  if (!python) GTEST_SKIP() << "LOCKSTEP_TEST_PYTHON names no interpreter";
  if (!python_can(python, "import safetensors, numpy", ""))
    GTEST_SKIP() << python << " has no safetensors and numpy";

  base::TemporaryFolder run, theirs;
  Tensors memory;
  const Contents contents = contents_of(memory, 1);
  const std::string ours = save(run.path(), contents, 1);
  ASSERT_TRUE(python_can(python, kScript, fmt::format("'{}' '{}'", ours, theirs.path())));

  const Opened opened(theirs.path());
  EXPECT_EQ(opened.names().size(), contents.model.size() + 4);
  for (const HostTensor& one : contents.model) {
    const device::Tensor read = memory.make(DType::f32, one.tensor.shape, 99);
    read_tensor(opened, one.name, read);
    EXPECT_TRUE(same_bits(read, one.tensor)) << one.name;
  }
  float half[3];
  read_tensor(opened, "half", {half, DType::f32, {1, 3}});
  EXPECT_EQ(half[0], 1);
  EXPECT_EQ(half[1], -2.5);
  EXPECT_EQ(half[2], 65504);
  const SafetensorsFile file(theirs.path() + "/model.safetensors");
  EXPECT_TRUE(file.entries().at("scalar").shape.empty());
}

}  // namespace
}  // namespace lockstep::checkpoint
