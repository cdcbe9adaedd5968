#include "lockstep/jobs/place.h"

#include <gtest/gtest.h>

#include <sstream>

#include "lockstep/base/error.h"
#include "lockstep/base/temporary_folder.h"
#include "lockstep/jobs/testing.h"

namespace lockstep::jobs {
namespace {

TEST(Place, DurationsReadAndWrite) {
  const std::pair<const char*, int64_t> rows[] = {
      {"90m", 5400}, {"24h", 86400}, {"1d12h", 129600}, {"45s", 45}, {"", 0},
      {"7", 0},      {"h", 0},       {"-1h", 0},        {"1x", 0},   {"99999999999d", 0}};
  for (const auto& [text, seconds] : rows) EXPECT_EQ(parse_duration(text).count, seconds) << text;
  EXPECT_EQ(duration_text({129600}), "1d12h");
  EXPECT_EQ(duration_text({5400}), "1h30m");
}

TEST(Place, EverySettingNamesRealKindsAndItsExampleReads) {
  for (const Setting& setting : settings()) {
    SCOPED_TRACE(setting.name);
    std::istringstream kinds(setting.kinds);
    for (std::string kind; kinds >> kind;) EXPECT_NO_THROW(find_target(kind)) << kind;
    const std::string kind =
        setting.kinds.empty() ? "slurm" : setting.kinds.substr(0, setting.kinds.find(' '));
    base::TemporaryFolder folder;
    const std::string file =
        folder.write("targets.toml", "[x]\n" + (setting.name == "kind" ? "" : "kind = \"" + kind + "\"\n") +
                                         setting.example + "\n");
    const std::vector<Place> places = read_targets(file);
    ASSERT_EQ(places.size(), 1u);
    EXPECT_NE(text_of(setting, places[0]), "");
    Place again;  // what a row writes, it reads
    set(again, setting.name, text_of(setting, places[0]), "");
    EXPECT_EQ(text_of(setting, again), text_of(setting, places[0]));
  }
}

TEST(Place, WrongFilesAreRefusedWithTheirLine) {
  struct Row {
    const char* text;
    int number;
    const char* says;
  };
  const Row rows[] = {
      {"[lab]\nkind = \"slurm\"\npartitoin = \"gpu\"\n", 720,
       "targets.toml:3: partitoin is not a setting of a target; did you mean partition?"},
      {"[lab]\nkind = \"slurm\"\nnodes = \"many\"\n", 721, ":3: nodes is an integer"},
      {"[lab]\nkind = \"slurm\"\nnodes = 0\n", 721, "from 1 to"},
      {"[lab]\nkind = \"slurm\"\nnodes = 2.5\n", 721, "2.5"},
      {"[lab]\nkind = \"slurm\"\ntime = \"soon\"\n", 721, "90m, 24h or 1d12h"},
      {"[lab]\nkind = \"slurm\"\noptions = \"--exclusive\"\n", 721, "is a list"},
      {"[lab]\nkind = \"slurm\"\npartition = [\"a\"]\n", 721, "not a list"},
      {"[lab]\nkind = \"slurm\"\npartition = \"a\\u0007\"\n", 721, "control character"},
      {"[lab]\nkind = \"slurm\"\ncontainer = \"docker\"\n", 721, "apptainer or pyxis"},
      {"[lab]\nkind = \"ssh\"\npartition = \"gpu\"\n", 722, "partition has no effect"},
      {"[lab]\nnodes = 2\n", 722, "has no kind"},
      {"[lab]\nkind = \"slrm\"\n", 723, "not a kind of target"},
      {"nodes = 2\n", 720, ":1: nodes is outside of a table"},
      {"[lab\n", 720, "targets.toml:1:"},
      {"[\"a b\"]\nkind = \"ssh\"\n", 720, "name has up to 40"},
      {"[lab]\nkind = \"slurm\"\n[lab.sub]\nx = 1\n", 721, "a table"},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.text);
    base::TemporaryFolder folder;
    try {
      read_targets(folder.write("targets.toml", row.text));
      FAIL();
    } catch (const base::ConfigError& error) {
      EXPECT_EQ(error.number(), row.number) << error.what();
      EXPECT_NE(std::string(error.what()).find(row.says), std::string::npos) << error.what();
    }
  }
}

TEST(Place, SecretsAreReferencesAndNeverQuoted) {
  Place place;
  place.kind = "slurm";
  for (const char* entry :
       {"HF_TOKEN=hf_secretvalue", "HF_TOKEN", "HF_TOKEN=file:", "1X=file:/a", "HF_TOKEN=kubernetes:a/b"}) {
    place.secrets = {entry};
    try {
      secrets_of(place);
      FAIL() << entry;
    } catch (const base::ConfigError& error) {
      EXPECT_EQ(error.number(), 724);
      EXPECT_EQ(std::string(error.what()).find("secretvalue"), std::string::npos);
    }
  }
  place.environment = {"WANDB_API_KEY=abc"};
  EXPECT_THROW(variables_of(place), base::ConfigError);
  place.environment = {"NCCL_DEBUG=WARN"};
  EXPECT_EQ(variables_of(place).size(), 1u);
}

}  // namespace
}  // namespace lockstep::jobs
