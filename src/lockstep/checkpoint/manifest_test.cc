#include "lockstep/checkpoint/manifest.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "lockstep/base/file.h"
#include "lockstep/base/hash.h"
#include "lockstep/base/temporary_folder.h"
#include "lockstep/checkpoint/testing.h"

namespace lockstep::checkpoint {
namespace {

using Json = nlohmann::json;

const Manifest kManifest = {.step = 7,
                            .recipe_toml = "[run]\nname = \"é\"\n",
                            .params_hash = "0123456789abcdef",
                            .layout = "2 ranks",
                            .state = {0, 10, 255},
                            .files = {{"a.safetensors", kChunkBytes + 1, {0xaa, 0xbb0000bb}}, {"b", 0, {}}}};

TEST(Manifest, ReadsBack) {
  base::TemporaryFolder folder;
  write_manifest(folder.path(), kManifest);
  const Manifest read = read_manifest(folder.path());
  EXPECT_EQ(read.step, 7);
  EXPECT_EQ(read.recipe_toml, kManifest.recipe_toml);
  EXPECT_EQ(read.params_hash, kManifest.params_hash);
  EXPECT_EQ(read.state, kManifest.state);
  ASSERT_EQ(read.files.size(), 2u);
  EXPECT_EQ(read.files[0].name, "a.safetensors");
  EXPECT_EQ(read.layout, "2 ranks");
  EXPECT_EQ(read.files[0].bytes, kChunkBytes + 1);
  EXPECT_EQ(read.files[0].sums, (std::vector<uint32_t>{0xaa, 0xbb0000bb}));
  EXPECT_TRUE(read.files[1].sums.empty());
}

TEST(Manifest, TextThatIsNotUtf8DoesNotStopASave) {
  base::TemporaryFolder folder;
  Manifest manifest = kManifest;
  manifest.recipe_toml = "path = \"\xff\"";
  write_manifest(folder.path(), manifest);
  EXPECT_EQ(read_manifest(folder.path()).recipe_toml, "path = \"\xef\xbf\xbd\"");
}

// A change to the true manifest, given a matching checksum, so that only its meaning is wrong.
struct Change {
  const char* patch;  // JSON merge patch; null removes a key
  const char* says;
};

TEST(Manifest, RefusesWrongMembers) {
  const Change changes[] = {
      {R"({"version": 1})", "it has format 1, but this program reads format 2"},
      {R"({"version": null})", "\"version\" is missing"},
      {R"({"step": -1})", "\"step\" is not an integer"},
      {R"({"step": 1.5})", "\"step\" is not an integer"},
      {R"({"step": 9223372036854775808})", "\"step\" is out of range"},
      {R"({"recipe": 1})", "\"recipe\" is not a string"},
      {R"({"state": "0"})", "\"state\" is not hexadecimal"},
      {R"({"state": "0g"})", "\"state\" is not hexadecimal"},
      {R"({"files": {}})", "\"files\" is not a list"},
      {R"({"files": ["a"]})", "\"name\" is missing"},
      {R"({"files": [{"name": "a", "bytes": -1, "crc32c": ""}]})", "\"bytes\" is not an integer"},
      {R"({"files": [{"name": "a", "bytes": 1, "crc32c": ""}]})", "eight digits per MiB"},
      {R"({"files": [{"name": "a", "bytes": 1, "crc32c": "0000000g"}]})", "eight digits per MiB"},
      {R"({"files": [{"name": "a", "bytes": 9223372036854775807, "crc32c": "00000000"}]})", "eight digits"},
      {R"({"files": [{"name": "a", "bytes": 0, "crc32c": ""}, {"name": "a", "bytes": 0, "crc32c": ""}]})",
       "\"a\" is listed twice"},
  };
  base::TemporaryFolder folder;
  write_manifest(folder.path(), kManifest);
  const Json good = Json::parse(base::read_file(folder.path() + "/manifest.json"));
  for (const Change& change : changes) {
    Json bad = good;
    bad.merge_patch(Json::parse(change.patch));
    folder.write("manifest.json", bad.dump());
    if (bad.value("version", 0) == 2) {
      EXPECT_NE(refusal(304, [&] { read_manifest(folder.path()); }).find("modified or damaged"),
                std::string::npos);
    }
    bad.erase("checksum");
    bad["checksum"] = base::hex64(base::hash_text(bad.dump()));
    folder.write("manifest.json", bad.dump());
    const std::string text = refusal(304, [&] { read_manifest(folder.path()); });
    EXPECT_NE(text.find(change.says), std::string::npos) << text;
    EXPECT_NE(text.find("manifest.json"), std::string::npos) << text;
  }
}

TEST(Manifest, NamesOfFilesAreCheckedWhereTheyAreOpened) {
  for (const char* name : {"../x.safetensors", "/etc/passwd", ""}) {
    base::TemporaryFolder folder;
    write_manifest(folder.path(), {.files = {{name, 1, {0}}}});
    refusal(308, [&] { Opened{folder.path()}; });
  }
}

}  // namespace
}  // namespace lockstep::checkpoint
