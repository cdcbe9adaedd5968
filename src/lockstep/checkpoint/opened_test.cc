#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "lockstep/base/file.h"
#include "lockstep/base/temporary_folder.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/manifest.h"
#include "lockstep/checkpoint/testing.h"

namespace lockstep::checkpoint {
namespace {

namespace fs = std::filesystem;
using device::DType;

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

void write_index_text(const base::TemporaryFolder& folder, const std::string& file) {
  const nlohmann::json index = {{"weight_map", {{"a", file}}}};
  folder.write("model.safetensors.index.json", index.dump());
}

TEST(Opened, ReadsASingleFileOfEveryFloat) {
  base::TemporaryFolder folder;
  Tensors memory;
  const uint16_t bf16[] = {0x3f80, 0xc000}, f16[] = {0x3c00, 0xc000};  // 1, -2
  const float f32[] = {1, -2};
  const auto tensor = [](const void* data, DType type) {
    return device::Tensor{const_cast<void*>(data), type, {2}};
  };
  write_safetensors(folder.path() + "/model.safetensors",
                    {{"u8", memory.make(DType::u8, {1}, 1)},  // puts the others off alignment
                     {"f32", tensor(f32, DType::f32)},
                     {"bf16", tensor(bf16, DType::bf16)},
                     {"f16", tensor(f16, DType::f16)},
                     {"i64", memory.make(DType::i64, {2}, 1)}},
                    {});
  write_index_text(folder, "not-looked-at.safetensors");
  folder.write("config.json", "{}");
  const Opened opened(folder.path());
  EXPECT_FALSE(opened.manifest());
  EXPECT_EQ(opened.config_json(), "{}");
  for (const char* name : {"f32", "bf16", "f16"}) {
    float values[2] = {};
    read_tensor(opened, name, {values, DType::f32, {2}});
    EXPECT_EQ(values[0], 1) << name;
    EXPECT_EQ(values[1], -2) << name;
  }
  float values[4];
  EXPECT_TRUE(has(refusal(307,
                          [&] {
                            read_tensor(opened, "i64", {values, DType::f32, {2}});
                          }),
                  "\"i64\" is stored as i64"));
  EXPECT_TRUE(has(refusal(307,
                          [&] {
                            read_tensor(opened, "f32", {values, DType::f32, {3}});
                          }),
                  "shape [2], but the model needs [3]"));
  EXPECT_TRUE(has(refusal(307,
                          [&] {
                            read_tensor(opened, "f32", {values, DType::f32, {2, 1}});
                          }),
                  "needs [2, 1]"));
  EXPECT_TRUE(has(refusal(307,
                          [&] {
                            read_tensor(opened, "f64", {values, DType::f32, {2}});
                          }),
                  "no tensor \"f64\""));
}

// Those who read it copy parts of it, and a copy goes as deep as the text.
TEST(Opened, RefusesAConfigThatIsNestedWithoutEnd) {
  base::TemporaryFolder folder;
  Tensors memory;
  write_safetensors(folder.path() + "/model.safetensors", {{"a", memory.make(DType::f32, {1}, 1)}}, {});
  const auto nested = [&](int levels, const std::string& inside) {
    folder.write("config.json", R"({"a]": "\"[", "rope_scaling": )" + std::string(levels, '[') + inside +
                                    std::string(levels, ']') + "}");
  };
  for (const int levels : {64, 1'000'000}) {
    nested(levels, "");
    EXPECT_TRUE(has(refusal(310, [&] { Opened(folder.path()); }), "config.json is nested deeper"));
  }
  nested(63, '"' + std::string(1000, '[') + '"');
  EXPECT_FALSE(Opened(folder.path()).config_json().empty());
  folder.write("config.json", std::string(5 << 20, ' '));
  EXPECT_TRUE(has(refusal(305, [&] { Opened(folder.path()); }), "config.json"));
}

TEST(Opened, TellsWhetherTwoTensorsAreTheSame) {
  base::TemporaryFolder folder;
  Tensors memory;
  float values[6] = {1, 2, 3, 4, 5, 6}, others[6] = {1, 2, 3, 4, 5, 7};
  uint16_t halves[6] = {0x3f80, 0x4000, 0x4040, 0x4080, 0x40a0, 0x40c0};  // as bf16
  write_safetensors(folder.path() + "/model.safetensors",
                    {{"a", {values, DType::f32, {2, 3}}},
                     {"half", {halves, DType::bf16, {2, 3}}},
                     {"other", {others, DType::f32, {2, 3}}},
                     {"turned", {values, DType::f32, {3, 2}}}},
                    {});
  const Opened opened(folder.path());
  EXPECT_TRUE(opened.same("a", "half"));
  EXPECT_FALSE(opened.same("a", "other"));
  EXPECT_FALSE(opened.same("a", "turned"));
}

TEST(Opened, RefusesFoldersWithoutAModel) {
  base::TemporaryFolder folder;
  EXPECT_TRUE(has(refusal(306, [&] { Opened(folder.path() + "/none"); }), "is not a folder"));
  EXPECT_TRUE(has(refusal(306, [&] { Opened(folder.path()); }), "contains no manifest.json"));
  folder.write("pytorch_model.bin", "");
  EXPECT_TRUE(has(refusal(312, [&] { Opened(folder.path()); }), "it has only 0 bytes"));
}

TEST(Opened, IndexMayOnlyNameFilesOfItsFolder) {
  base::TemporaryFolder outside;
  Tensors memory;
  const std::string secret = outside.path() + "/secret.safetensors";
  write_safetensors(secret, {{"a", memory.make(DType::f32, {1}, 1)}}, {});
  base::TemporaryFolder folder;
  const std::string up = "../" + fs::path(outside.path()).filename().string() + "/secret.safetensors";
  fs::create_symlink(secret, folder.path() + "/link");
  fs::create_symlink(up, folder.path() + "/relative-link");
  fs::create_directory_symlink(outside.path(), folder.path() + "/sub");
  fs::create_directory(folder.path() + "/folder");
  fs::create_symlink(folder.path(), folder.path() + "/itself");
  fs::create_symlink("loop", folder.path() + "/loop");
  for (const std::string& name :
       {up, secret, std::string("link"), std::string("relative-link"), std::string("sub/secret.safetensors"),
        std::string("./link"), std::string(".."), std::string("."), std::string(), std::string("folder"),
        std::string("itself"), std::string("a\0b", 3), std::string("a\nb"), std::string(300, 'x')}) {
    SCOPED_TRACE(name);
    write_index_text(folder, name);
    refusal(308, [&] { Opened(folder.path()); });
  }
  for (const char* name : {"none", "loop"}) {
    write_index_text(folder, name);
    EXPECT_TRUE(has(refusal(305, [&] { Opened(folder.path()); }), "is missing"));
  }
  fs::remove(folder.path() + "/model.safetensors.index.json");
  fs::create_symlink(secret,
                     folder.path() + "/model.safetensors");  // the well-known names are watched as well
  refusal(308, [&] { Opened(folder.path()); });
}

TEST(Opened, FollowsLinksWithinTheFolderAndTheHubsCache) {
  base::TemporaryFolder cache;
  Tensors memory;
  const std::string snapshot = cache.path() + "/snapshots/abc";
  fs::create_directories(snapshot);
  fs::create_directories(cache.path() + "/blobs");
  write_safetensors(cache.path() + "/blobs/123", {{"a", memory.make(DType::f32, {1}, 1)}}, {});
  fs::create_symlink("../../blobs/123", snapshot + "/model.safetensors");
  EXPECT_TRUE(Opened(snapshot).has("a"));
  fs::create_symlink("model.safetensors", snapshot + "/again");
  fs::rename(snapshot + "/model.safetensors", snapshot + "/x");
  fs::create_symlink("x", snapshot + "/model.safetensors");
  EXPECT_TRUE(Opened(snapshot).has("a"));
}

TEST(Opened, IndexMustAgreeWithItsFiles) {
  base::TemporaryFolder folder;
  Tensors memory;
  write_safetensors(folder.path() + "/x.safetensors", {{"b", memory.make(DType::f32, {1}, 1)}}, {});
  write_index_text(folder, "x.safetensors");
  EXPECT_TRUE(
      has(refusal(303, [&] { Opened(folder.path()); }), "tensor \"a\" is in x.safetensors, but that file"));
}

TEST(Opened, NamesTheDamagedFile) {
  base::TemporaryFolder run;
  Tensors memory;
  const std::string folder = save(run.path(), contents_of(memory, 1), 1);
  for (const char* name : {"config.json", "model.safetensors.index.json", "model-00001-of-00001.safetensors",
                           "optimizer-00001-of-00001.safetensors"}) {
    const std::string path = folder + "/" + name, good = base::read_file(path);
    const std::string inner = "checkpoints/step-00000001/" + std::string(name);
    std::string bad = good;
    bad[bad.size() - 2] ^= 1;
    run.write(inner, bad);
    const std::string said = refusal(305, [&] { Opened(folder).check_all(); });
    EXPECT_TRUE(has(said, path + " is damaged: the checksum of the MiB at byte 0")) << said;
    run.write(inner, good + "x");
    EXPECT_TRUE(has(refusal(305, [&] { Opened{folder}; }), path + " is damaged: it has"));
    fs::remove(path);
    EXPECT_TRUE(has(refusal(305, [&] { Opened{folder}; }), path + " is missing"));
    run.write(inner, good);
  }
  EXPECT_TRUE(holds(Opened(folder), contents_of(memory, 1)));
}

// Tensors are checked while they are read: what lies in other chunks does not matter, and the tensor is
// named.
TEST(Opened, ReadsOnlyThePiecesAskedFor) {
  base::TemporaryFolder folder;
  Tensors memory;
  constexpr int64_t kRows = 3 * kChunkBytes / 4 / 8;
  const device::Tensor big = memory.make(DType::f32, {kRows, 8}, 1);  // three chunks of 1 MiB
  const std::string path = folder.path() + "/x.safetensors";
  write_manifest(folder.path(), {.files = {write_safetensors(path, {{"big", big}}, {})}});
  std::string bytes = base::read_file(path);
  bytes[bytes.size() - 5] ^= 4;
  folder.write("x.safetensors", bytes);
  const Opened opened(folder.path());
  Piece left = whole_piece(opened.find("big"));
  cut(left, 1, 1, 4);  // columns 2 and 3
  const Piece early = part_of(left, 2, 2 * 1000);
  std::vector<float> values(2000);
  opened.read({{early, values.data()}});
  for (int64_t k = 0; k < 2000; ++k)
    ASSERT_EQ(std::memcmp(&values[static_cast<size_t>(k)], big.as<float>() + (1 + k / 2) * 8 + 2 + k % 2, 4),
              0);
  std::vector<float> all(static_cast<size_t>(left.count));
  const std::string said = refusal(305, [&] { opened.read({{left, all.data()}}); });
  EXPECT_TRUE(
      has(said, "x.safetensors is damaged in tensor \"big\": the checksum of the MiB at byte 3145728"))
      << said;
}

TEST(Opened, NamesOfAModelSavedWithoutItsHeadAreFound) {
  base::TemporaryFolder folder;
  Tensors memory;
  write_safetensors(folder.path() + "/model.safetensors", {{"wte.weight", memory.make(DType::f32, {1}, 1)}},
                    {});
  EXPECT_TRUE(Opened(folder.path()).has("transformer.wte.weight"));
  EXPECT_FALSE(Opened(folder.path()).has("transformer.wpe.weight"));
}

TEST(Opened, ATensorInTwoFilesIsRefused) {
  base::TemporaryFolder folder;
  Tensors memory;
  const device::Tensor tensor = memory.make(DType::f32, {1}, 1);
  const FileSummary x = write_safetensors(folder.path() + "/x.safetensors", {{"a", tensor}}, {});
  const FileSummary y = write_safetensors(folder.path() + "/y.safetensors", {{"a", tensor}}, {});
  write_manifest(folder.path(), {.files = {x, y}});
  EXPECT_TRUE(has(refusal(309, [&] { Opened{folder.path()}; }), "tensor \"a\" is in both"));
}

}  // namespace
}  // namespace lockstep::checkpoint
