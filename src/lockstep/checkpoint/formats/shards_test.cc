#include "lockstep/checkpoint/formats/shards.h"

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
    std::vector<Whole> tensors;
    for (const int64_t size : plan.sizes) {
      tensors.push_back(
          {.name = fmt::format("t{}", tensors.size()), .dtype = device::DType::u8, .shape = {size}});
    }
    const std::vector<PlannedFile> planned = plan_files(tensors, 10);
    std::vector<std::vector<int64_t>> files;
    size_t number = 0;
    for (const PlannedFile& file : planned) {
      files.emplace_back();
      EXPECT_EQ(file.header.size() % 4096, 0u);
      auto at = static_cast<int64_t>(file.header.size());
      for (size_t t = 0; t < file.tensors.size(); ++t) {
        EXPECT_EQ(file.tensors[t].name, tensors[number++].name);
        EXPECT_EQ(file.begins[t], at);
        files.back().push_back(file.tensors[t].bytes());
        at += file.tensors[t].bytes();
      }
      EXPECT_EQ(file.bytes, at);
    }
    EXPECT_EQ(files, plan.files);
    EXPECT_EQ(planned.back().name, fmt::format("model-{0:05d}-of-{0:05d}.safetensors", files.size()));
  }
}

TEST(Shards, MomentsLieApart) {
  const Whole weight{.name = "w", .shape = {2}}, moment{.name = "w.m", .shape = {2}, .kind = Kind::moment};
  const std::vector<PlannedFile> files = plan_files({weight, moment});
  ASSERT_EQ(files.size(), 2u);
  EXPECT_EQ(files[1].name, "optimizer-00001-of-00001.safetensors");
  const auto index = nlohmann::json::parse(index_text(files));
  EXPECT_EQ(index["metadata"]["total_size"], 8);
  EXPECT_EQ(index["weight_map"], (nlohmann::json{{"w", "model-00001-of-00001.safetensors"}}));
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
