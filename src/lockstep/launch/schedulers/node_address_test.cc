#include "lockstep/launch/schedulers/node_address.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/temporary_folder.h"

namespace lockstep::launch {
namespace {

// Slurm 22.05, `scontrol --oneliner show node n1`, shortened.
const char* const kAnswer =
    "NodeName=n1 Arch=x86_64 CoresPerSocket=1 CPUAlloc=0 CPUTot=4 CPULoad=1.53 AvailableFeatures=(null) "
    "Gres=(null) NodeAddr=127.0.0.1 NodeHostName=localhost Port=20626 Version=22.05.8 State=IDLE\n";

TEST(NodeAddress, IsReadFromWhatScontrolPrints) {
  struct Case {
    std::string answer;
    std::optional<std::string> address;
  };
  const Case cases[] = {
      {kAnswer, "127.0.0.1"},
      {"NodeName=n1\n   NodeAddr=fd00::1 NodeHostName=n1\n", "fd00::1"},  // without --oneliner
      {"NodeAddr=n1.cluster", "n1.cluster"},
      {"BcastNodeAddr=10.0.0.9 NodeAddr=10.0.0.1 X=1", "10.0.0.1"},
      {"NodeAddr=(null) NodeHostName=n1", std::nullopt},
      {"NodeAddr= NodeHostName=n1", std::nullopt},
      {"Node n1 not found\n", std::nullopt},
      {"", std::nullopt},
  };
  for (const Case& one : cases) EXPECT_EQ(node_addr_in(one.answer), one.address) << one.answer;
}

// A name that no resolver has: the ending is reserved for that.
TEST(NodeAddress, SlurmIsAskedOnlyAboutNamesThatDoNotResolve) {
  struct Case {
    const char *scheduler, *name, *answer;
    std::string host;  // empty: refused
    int asked;
  };
  const Case cases[] = {
      {"Slurm", "localhost", kAnswer, "localhost", 0},
      {"Slurm", "10.1.2.3", kAnswer, "10.1.2.3", 0},
      {"Slurm", "n1.invalid", kAnswer, "127.0.0.1", 1},
      {"Slurm", "n1.invalid", "NodeAddr=n2.invalid", "", 1},
      {"Slurm", "n1.invalid", "", "", 1},
      {"PBS", "n1.invalid", kAnswer, "n1.invalid", 0},
  };
  for (const Case& one : cases) {
    Scheduled scheduled;
    scheduled.scheduler = one.scheduler, scheduled.first_host = one.name;
    int asked = 0;
    const auto ask = [&](const std::string& node) {
      EXPECT_EQ(node, one.name);
      ++asked;
      return std::string(one.answer);
    };
    try {
      EXPECT_EQ(first_host(scheduled, ask), one.host) << one.name;
    } catch (const base::ConfigError& error) {
      EXPECT_EQ(one.host, "") << error.what();
      EXPECT_EQ(error.number(), 555);
    }
    EXPECT_EQ(asked, one.asked) << one.name;
  }
}

TEST(NodeAddress, ScontrolIsRunWithoutAShell) {
  base::TemporaryFolder folder;
  folder.write("scontrol", "#!/bin/sh\necho \"NodeAddr=[$*]\"\n");
  ::chmod((folder.path() + "/scontrol").c_str(), 0755);
  const std::string before = ::getenv("PATH") ? ::getenv("PATH") : "";
  ::setenv("PATH", (folder.path() + ":" + before).c_str(), 1);
  const std::string plain = ask_slurm("n1"), hostile = ask_slurm("n1; touch x"), option = ask_slurm("-x");
  ::setenv("PATH", folder.path().c_str(), 1);
  ::unlink((folder.path() + "/scontrol").c_str());
  const std::string absent = ask_slurm("n1");
  ::setenv("PATH", before.c_str(), 1);
  EXPECT_EQ(plain, "NodeAddr=[--oneliner show node n1]\n");
  EXPECT_EQ(hostile, "NodeAddr=[--oneliner show node n1; touch x]\n");
  EXPECT_EQ(option, "");
  EXPECT_EQ(absent, "");
}

}  // namespace
}  // namespace lockstep::launch
