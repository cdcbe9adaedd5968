#include "lockstep/store/store.h"

#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/base/temporary_folder.h"
#include "lockstep/store/classify.h"
#include "lockstep/store/endpoint.h"
#include "lockstep/store/testing.h"

namespace lockstep::store {
namespace {

const Uri kUri{.scheme = "s3", .account = {}, .path = "b/a", .query = {}};

// Time passes only in pauses.
struct Waiting {
  double clock = 0;
  std::vector<double> pauses = {};
  Patience patience(double seconds) {
    return {.seconds = seconds,
            .first_pause = 1,
            .longest_pause = 4,
            .pause = [this](double s) { clock += s, pauses.push_back(s); },
            .clock = [this] { return clock; }};
  }
};

TEST(PatientStore, TriesAgainWithGrowingPauses) {
  FakeState state;
  state.put("b/a", "bytes");
  for (int i = 0; i < 5; ++i) state.faults.emplace_back(Fault::Kind::passing, "503 SLOW_DOWN");
  Waiting waiting;
  const auto store = with_patience(std::make_unique<FakeStore>(state), kUri, waiting.patience(60));
  EXPECT_EQ(store->list("b").size(), 1U);
  EXPECT_EQ(waiting.pauses, (std::vector<double>{1, 2, 4, 4, 4}));
}

TEST(PatientStore, SaysWhyItGaveUp) {
  struct Row {
    Fault::Kind kind;
    int number, exit_code;
    size_t requests;
    const char* says;
  };
  const Row rows[] = {
      {Fault::Kind::passing, 290, 1, 4, "s3://b/a cannot be looked up: trouble (attempt 4, 7 s in all)"},
      {Fault::Kind::missing, 288, 3, 1, "check the bucket's and the object's name"},
      {Fault::Kind::denied, 289, 2, 1, "check the credentials"},
      {Fault::Kind::local, 292, 1, 1, "trouble"}};
  for (const Row& row : rows) {
    FakeState state;
    for (int i = 0; i < 9; ++i) state.faults.emplace_back(row.kind, "trouble");
    Waiting waiting;
    const auto store = with_patience(std::make_unique<FakeStore>(state), kUri, waiting.patience(10));
    try {
      store->find("b/a");
      FAIL();
    } catch (const base::Error& error) {
      EXPECT_EQ(error.number(), row.number);
      EXPECT_EQ(error.exit_code(), row.exit_code);
      EXPECT_NE(std::string(error.what()).find(row.says), std::string::npos) << error.what();
    }
    EXPECT_EQ(state.asked.size(), row.requests);
  }
}

// What Azure's client throws at an answer that is no XML: tried again, not the end of the process.
class Confused final : public Store {
 public:
  explicit Confused(int& asked) : asked_(asked) {}
  std::vector<Object> list(const std::string&) override {
    if (++asked_ == 1) throw std::runtime_error("Failed to parse xml.");
    if (asked_ == 2) throw std::out_of_range("map::at");
    return {};
  }
  std::optional<Object> find(const std::string&) override { return {}; }
  void read(const Object&, int64_t, std::span<std::byte>) override {}
  void write(const std::string&, const std::string&) override {}
  void remove(const std::string&) override {}

 private:
  int& asked_;
};

TEST(PatientStore, AnAnswerThatTheClientCannotRead) {
  int asked = 0;
  const Patience patience{.seconds = 100, .pause = [](double) {}, .clock = [] { return 0.0; }};
  const auto store =
      with_patience(std::make_unique<Confused>(asked), parse_uri("abfs://box@account/a"), patience);
  EXPECT_TRUE(store->list("box/a").empty());
  EXPECT_EQ(asked, 3);
}

TEST(Classify, WhatServersSay) {
  struct Row {
    const char* message;
    Fault::Kind kind;
  };
  const Row rows[] = {
      {"AWS Error SLOW_DOWN during GetObject operation: Please reduce your request rate",
       Fault::Kind::passing},
      {"AWS Error NETWORK_CONNECTION during GetObject operation: curlCode: 56", Fault::Kind::passing},
      {"AWS Error UNKNOWN (HTTP status 503) during ListObjectsV2 operation", Fault::Kind::passing},
      {"AWS Error UNKNOWN (HTTP status 400) during HeadObject: ExpiredToken", Fault::Kind::denied},
      {"AWS Error UNKNOWN (HTTP status 400) during HeadObject operation: No response body.",
       Fault::Kind::denied},
      {"No such file or directory 'data/runs/a'", Fault::Kind::missing},
      {"AWS Error ACCESS_DENIED during PutObject operation: no", Fault::Kind::denied},
      {"AWS Error NO_SUCH_BUCKET during CreateMultipartUpload operation", Fault::Kind::missing},
      {"AWS Error NO_SUCH_KEY during GetObject operation", Fault::Kind::missing},
      {"google::cloud::Status(UNAVAILABLE: try again)", Fault::Kind::passing},
      {"Permanent error: NOT_FOUND", Fault::Kind::missing},
      {"PERMISSION_DENIED", Fault::Kind::denied},
      {"Azure Error: [NoAuthenticationInformation] 401 Unauthorized", Fault::Kind::denied},
      {"Azure Error: [AuthenticationFailed] 403 Forbidden", Fault::Kind::denied},
      {"Azure Error: [ServerBusy] 503 The server is busy.", Fault::Kind::passing},
      {"something that nobody has seen yet", Fault::Kind::passing},
  };
  for (const Row& row : rows) EXPECT_EQ(kind_of_fault(row.message), row.kind) << row.message;
}

// With and without the question mark: Arrow sets it behind the address as it is.
TEST(Endpoint, AzuresTokenInBothForms) {
  for (const char* said : {"sv=2024&sig=x", "?sv=2024&sig=x"}) {
    setenv("AZURE_STORAGE_SAS_TOKEN", said, 1);
    EXPECT_EQ(endpoint_of(parse_uri("abfs://box@account/a")).sas_token, "?sv=2024&sig=x");
  }
  unsetenv("AZURE_STORAGE_SAS_TOKEN");
}

TEST(Classify, SecretsAreCutOut) {
  const char* rows[] = {"GET /?X-Amz-Security-Token=SECRET&a=b failed", "Authorization: SECRET, more",
                        "<Error><AWSAccessKeyId>SECRET</AWSAccessKeyId></Error>", "sig=SECRET",
                        "token Bearer SECRET"};
  for (const char* message : rows)
    EXPECT_EQ(without_secrets(message).find("SECRET"), std::string::npos) << without_secrets(message);
  EXPECT_EQ(without_secrets("no such bucket"), "no such bucket");
  EXPECT_LT(without_secrets(std::string(5000, 'x')).size(), 500U);
}

TEST(FolderStore, IsAStore) {
  const base::TemporaryFolder folder;
  const std::string file = folder.write("from", "0123456789"), root = folder.path().substr(1) + "/store";
  const auto store = open_folder_store();
  EXPECT_TRUE(store->list(root).empty());
  EXPECT_FALSE(store->find(root + "/a/b"));
  store->write(root + "/a/b", file);
  store->write(root + "/a/c", file);
  ASSERT_EQ(store->list(root).size(), 2U);
  const auto object = store->find(root + "/a/b");
  ASSERT_TRUE(object);
  EXPECT_EQ(object->size, 10);
  std::vector<std::byte> bytes(4);
  store->read(*object, 3, bytes);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(bytes.data()), 4), "3456");
  EXPECT_THROW(store->read(*object, 8, bytes), Fault);
  store->remove(root + "/a/b");
  store->remove(root + "/a/b");
  EXPECT_EQ(store->list(root).size(), 1U);
  try {
    store->write(root + "/d", folder.path() + "/gone");
    FAIL();
  } catch (const Fault& fault) {
    EXPECT_EQ(fault.kind, Fault::Kind::local);
  }
}

}  // namespace
}  // namespace lockstep::store
