#include "lockstep/checkpoint/shards.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "lockstep/base/file.h"
#include "lockstep/base/temporary_folder.h"
#include "lockstep/checkpoint/testing.h"

namespace lockstep::checkpoint {
namespace {

struct Plan {
  std::vector<int64_t> sizes;               // bytes of each tensor
  std::vector<std::vector<int64_t>> files;  // of at most 10 bytes
};

TEST(Shards, FillFilesInOrder) {
  const Plan plans[] = {
      {{}, {{}}},
      {{10}, {{10}}},
      {{4, 6}, {{4, 6}}},
      {{4, 7}, {{4}, {7}}},
      {{25}, {{25}}},  // larger than a file
      {{1, 25, 1}, {{1}, {25}, {1}}},
      {{5, 5, 5, 5, 5}, {{5, 5}, {5, 5}, {5}}},
      {{0, 10, 0, 1}, {{0, 10, 0}, {1}}},
  };
  for (const Plan& plan : plans) {
    Tensors memory;
    std::vector<HostTensor> tensors;
    for (const int64_t size : plan.sizes) {
      tensors.push_back({fmt::format("t{}", tensors.size()), memory.make(device::DType::u8, {size}, 1)});
    }
    const std::vector<Shard> shards = plan_shards("model", tensors, 10);
    std::vector<std::vector<int64_t>> files;
    size_t at = 0;
    for (const Shard& shard : shards) {
      files.emplace_back();
      for (const HostTensor& one : shard.tensors) {
        EXPECT_EQ(one.name, tensors[at++].name);
        files.back().push_back(one.tensor.bytes());
      }
    }
    EXPECT_EQ(files, plan.files);
    EXPECT_EQ(shards.back().file_name, fmt::format("model-{0:05d}-of-{0:05d}.safetensors", files.size()));
  }
}

TEST(Shards, OpenThroughTheIndexAsAHuggingFaceFolder) {
  base::TemporaryFolder folder;
  Tensors memory;
  std::vector<HostTensor> tensors;
  for (int i = 0; i < 7; ++i) {
    tensors.push_back(
        {fmt::format("h.{}.weight", i), memory.make(device::DType::f32, {3, i}, static_cast<uint64_t>(i))});
  }
  const std::vector<Shard> shards = plan_shards("model", tensors, 100);
  ASSERT_GT(shards.size(), 2u);
  write_shards(folder.path(), shards);
  write_index(folder.path(), shards);

  const auto index = nlohmann::json::parse(base::read_file(folder.path() + "/model.safetensors.index.json"));
  EXPECT_EQ(index["metadata"]["total_size"], 3 * 21 * 4);
  EXPECT_EQ(index["weight_map"]["h.0.weight"], shards[0].file_name);
  EXPECT_EQ(SafetensorsFile(folder.path() + "/" + shards[0].file_name).metadata().at("format"), "pt");

  const Opened opened(folder.path());
  EXPECT_FALSE(opened.manifest());
  EXPECT_EQ(opened.config_json(), "");
  EXPECT_EQ(opened.names().size(), tensors.size());
  for (const HostTensor& one : tensors) {
    const device::Tensor read = memory.make(device::DType::f32, one.tensor.shape, 99);
    opened.read(one.name, read);
    EXPECT_TRUE(same_bits(read, one.tensor)) << one.name;
  }
}

TEST(Shards, UnusableIndexesAreRefused) {
  base::TemporaryFolder folder;
  for (const char* text :
       {"", "[]", "{}", R"({"weight_map": 3})", R"({"weight_map": {}})", R"({"weight_map": {"a": 1}})",
        R"({"weight_map": {"a": "x", "a": "y"}})", "{\"weight_map\": {\"a\": \"\xff\"}}"}) {
    const std::string path = folder.write("index.json", text);
    SCOPED_TRACE(text);
    EXPECT_NE(refusal(303, [&] { read_index(path); }).find(path), std::string::npos);
  }
}

}  // namespace
}  // namespace lockstep::checkpoint
