#include "lockstep/launch/rendezvous/secret_source.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <set>
#include <thread>

#include "lockstep/base/file.h"
#include "lockstep/base/refusal.h"
#include "lockstep/base/temporary_folder.h"

namespace lockstep::launch {
namespace {

using namespace std::chrono_literals;

class SecretSource : public testing::Test {
 protected:
  SecretPlaces places() const { return {"", "", folder_.path() + "/config"}; }
  std::string write(const std::string& name, const comm::Secret& secret) const {
    const std::string path = folder_.write(name, secret.to_text());
    ::chmod(path.c_str(), 0600);
    return path;
  }
  static int mode_of(const std::string& path) {
    struct stat status {};
    return ::stat(path.c_str(), &status) == 0 ? status.st_mode & 0777 : -1;
  }
  base::TemporaryFolder folder_;
};

TEST_F(SecretSource, TheNearestWins) {
  const comm::Secret file = comm::Secret::random(), text = comm::Secret::random(),
                     config = comm::Secret::random();
  SecretPlaces all = places();
  all.file = write("file", file);
  all.text = text.to_text();
  write("config/lockstep/secret", config);
  for (const bool first_node : {false, true}) {
    SecretPlaces left = all;
    EXPECT_EQ(find_secret(left, first_node, 0ms).secret.bytes(), file.bytes());
    left.file.clear();
    EXPECT_EQ(find_secret(left, first_node, 0ms).secret.bytes(), text.bytes());
    left.text.clear();
    EXPECT_EQ(find_secret(left, first_node, 0ms).secret.bytes(), config.bytes());
    EXPECT_EQ(find_secret(left, first_node, 0ms).notice, "");
  }
}

TEST_F(SecretSource, NodeZeroMakesAFileThatTheOthersRead) {
  EXPECT_EQ(base::number_of_refusal([&] { find_secret(places(), false, 0ms); }), 543);
  const FoundSecret made = find_secret(places(), true, 0ms);
  EXPECT_NE(made.notice.find(places().config_file()), std::string::npos) << made.notice;
  EXPECT_EQ(made.notice.find(made.secret.to_text()), std::string::npos) << "the secret itself is not shown";
  EXPECT_EQ(mode_of(places().config_file()), 0600);
  EXPECT_EQ(mode_of(folder_.path() + "/config/lockstep"), 0700);
  EXPECT_EQ(find_secret(places(), false, 0ms).secret.bytes(), made.secret.bytes());
  EXPECT_EQ(find_secret(places(), true, 0ms).secret.bytes(), made.secret.bytes());  // the next run
}

TEST_F(SecretSource, ANodeWaitsForNodeZero) {
  std::string other;
  std::thread node([&] { other = find_secret(places(), false, 10s).secret.bytes(); });
  std::this_thread::sleep_for(50ms);
  const FoundSecret made = find_secret(places(), true, 0ms);
  node.join();
  EXPECT_EQ(other, made.secret.bytes());
}

TEST_F(SecretSource, ManyAtOnceAgree) {
  std::vector<std::string> found(8);
  std::vector<std::thread> runs;
  for (std::string& one : found)
    runs.emplace_back([&] { one = find_secret(places(), false, 10s).secret.bytes(); });
  const std::string made = find_secret(places(), true, 0ms).secret.bytes();
  for (std::thread& run : runs) run.join();
  EXPECT_EQ(std::set<std::string>(found.begin(), found.end()), std::set<std::string>{made});
  const std::filesystem::directory_iterator files(folder_.path() + "/config/lockstep"), end;
  EXPECT_EQ(std::distance(files, end), 1) << "something was left beside the secret";
}

TEST_F(SecretSource, WithoutAFolderNodeZeroSaysWhatToType) {
  const std::string blocked = folder_.write("a file", "");  // no folder can be made below it
  for (const std::string& config : {std::string(), blocked}) {
    const FoundSecret found = find_secret({"", "", config}, true, 0ms);
    EXPECT_EQ(found.notice,
              "on the other nodes, run first: export LOCKSTEP_SECRET=" + found.secret.to_text());
    EXPECT_EQ(base::number_of_refusal([&] { find_secret({"", "", config}, false, 0ms); }), 543);
  }
}

TEST_F(SecretSource, ABadSecretIsNotPassedOver) {
  const std::string path = write("config/lockstep/secret", comm::Secret::random());
  ::chmod(path.c_str(), 0644);
  EXPECT_EQ(base::number_of_refusal([&] { find_secret(places(), true, 0ms); }), 512);
  EXPECT_EQ(base::number_of_refusal([&] { find_secret({"/absent", "", ""}, true, 0ms); }), 512);
  EXPECT_EQ(base::number_of_refusal([&] { find_secret({"", "short", ""}, true, 0ms); }), 511);
  ::unlink(path.c_str());
  ASSERT_EQ(::symlink("/absent", path.c_str()), 0);
  EXPECT_EQ(base::number_of_refusal([&] { find_secret(places(), true, 0ms); }), 512);
}

TEST(SecretPlaces, FollowTheStandard) {
  EXPECT_EQ(secret_places({{"HOME", "/home/a"}}, "").config_file(), "/home/a/.config/lockstep/secret");
  EXPECT_EQ(secret_places({{"HOME", "/home/a"}, {"XDG_CONFIG_HOME", "/x"}}, "").config_folder, "/x");
  EXPECT_EQ(secret_places({{"HOME", "/home/a"}, {"XDG_CONFIG_HOME", "x"}}, "").config_folder,
            "/home/a/.config");
  EXPECT_EQ(secret_places({}, "").config_folder, "");
  EXPECT_EQ(secret_places({{"LOCKSTEP_SECRET", "s"}}, "f").text, "s");
  EXPECT_EQ(secret_places({}, "f").file, "f");
}

}  // namespace
}  // namespace lockstep::launch
