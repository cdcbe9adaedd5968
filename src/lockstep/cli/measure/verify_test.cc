// `lockstep verify` from the outside: real runs of a tiny model.
#include <fstream>

#include "lockstep/base/temporary_folder.h"
#include "lockstep/checkpoint/formats/safetensors.h"
#include "lockstep/cli/testing.h"

namespace lockstep::cli {
namespace {

constexpr const char* kTiny = "run.device=cpu model.layers=2 data.seq_len=16 --steps 2";

TEST(VerifyCommand, RowsHoldOrAreNamed) {
  const base::TemporaryFolder folder;
  const std::string tiny = kTiny;
  expect_rows(
      folder.path(),
      {
          {"$L verify --layouts 'data=2 data=2,zero=3' --jobs 2 " + tiny, 0, "3 of 3 pass"},
          {"$L verify model.family=llama model.kv_heads=2 precision.compute=bf16 --json --layouts data=2 " +
               tiny + " 2> /dev/null",
           0, "\"holds\":true"},
          {"$L verify --layouts data=4,zero=3,shard=3 " + tiny, 1, "refused: parallel.shard = 3"},
          {"$L verify --layouts data=2,zero=9 " + tiny, 2, "[LS0182]"},
          {"$L verify --layouts '' --steps 0", 2, "[LS0109]"},
          {"$L verify --nproc 1000000", 2, "[LS0109]"},
          {"$L verify --jobs 65", 2, "[LS0109]"},
          {"$L verify model.heads=3 --layouts data=2", 2, "model.heads"},
          {"$L verify --against nowhere --layouts data=1 " + tiny, 2, "nowhere contains no golden run"},
      });
}

// Doubles one tensor of the golden run, as a wrong scale would.
void spoil(const std::string& path, const std::string& name) {
  const checkpoint::SafetensorsFile::Entry entry = checkpoint::SafetensorsFile(path).entries().at(name);
  std::vector<float> values(static_cast<size_t>(entry.end - entry.begin) / sizeof(float));
  const auto bytes = static_cast<std::streamsize>(values.size() * sizeof(float));
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(entry.begin);
  file.read(reinterpret_cast<char*>(values.data()), bytes);
  for (float& value : values) value *= 2;
  file.seekp(entry.begin);
  file.write(reinterpret_cast<const char*>(values.data()), bytes);
}

TEST(VerifyCommand, GoldenRunsAreComparedTensorByTensor) {
  const base::TemporaryFolder folder;
  const std::string tiny = kTiny, line = "$L verify --layouts data=1 --against golden " + tiny;
  expect_rows(folder.path(), {{"$L verify --layouts data=1 --keep golden " + tiny, 0, "1 of 1 pass"},
                              {line, 0, "golden run in golden: loss bitwise"},
                              {"$L verify --layouts data=1 --keep golden " + tiny, 2, "already exists"},
                              {line + " run.seed=2", 2, "run.seed"}});
  spoil(folder.path() + "/golden/one-rank/checkpoints/step-00000001/optimizer-00001-of-00001.safetensors",
        "transformer.h.1.attn.c_proj.weight.m");
  expect_rows(folder.path(), {{line, 1, "gradients differ first in block 2 "},
                              {line, 1, "transformer.h.1.attn.c_proj.weight"}});
}

}  // namespace
}  // namespace lockstep::cli
