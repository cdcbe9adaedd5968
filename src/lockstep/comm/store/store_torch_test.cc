// Our store as c10d sees it: every virtual of PyTorch's Store.
#include "lockstep/comm/store/store_torch.h"

#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <thread>

#include "lockstep/comm/store/store_server.h"

namespace lockstep::comm {
namespace {

using namespace std::chrono_literals;
using Bytes = std::vector<uint8_t>;

Bytes bytes(const std::string& text) { return Bytes(text.begin(), text.end()); }

class TorchStoreTest : public testing::TestWithParam<bool> {
 protected:
  TorchStoreTest() {
    if (GetParam()) {
      StoreServerOptions options;
      options.secret = Secret::random();
      server_ = std::make_unique<StoreServer>(options);
      StoreClientOptions client;
      client.endpoint = server_->endpoint();
      client.secret = options.secret;
      store_ = as_c10d(connect_store(client));
    } else {
      store_ = as_c10d(make_local_store());
    }
  }
  std::unique_ptr<StoreServer> server_;
  c10::intrusive_ptr<c10d::Store> store_;
};
INSTANTIATE_TEST_SUITE_P(Kinds, TorchStoreTest, testing::Bool(),
                         [](const auto& row) { return row.param ? "server" : "local"; });

TEST_P(TorchStoreTest, AnswersEveryCall) {
  store_->set("a", bytes(std::string("x\0y", 3)));
  EXPECT_EQ(store_->get("a"), bytes(std::string("x\0y", 3)));
  EXPECT_EQ(store_->compareSet("a", bytes("wrong"), bytes("z")), bytes(std::string("x\0y", 3)));
  EXPECT_EQ(store_->compareSet("b", Bytes(), bytes("z")), bytes("z"));
  EXPECT_EQ(store_->compareSet("none", bytes("e"), bytes("z")), bytes("e"));
  EXPECT_EQ(store_->add("n", 41), 41);
  EXPECT_EQ(store_->add("n", 1), 42);
  EXPECT_EQ(store_->get_to_str("n"), "42");
  EXPECT_TRUE(store_->check({"a", "b"}));
  EXPECT_FALSE(store_->check({"a", "c"}));
  EXPECT_EQ(store_->getNumKeys(), 3);
  EXPECT_EQ(store_->listKeys(), (std::vector<std::string>{"a", "b", "n"}));
  EXPECT_TRUE(store_->deleteKey("a"));
  EXPECT_FALSE(store_->deleteKey("a"));
  EXPECT_TRUE(store_->hasExtendedApi());
  store_->append("b", bytes("!"));
  store_->multiSet({"c", "d"}, {bytes("1"), bytes("2")});
  EXPECT_EQ(store_->multiGet({"b", "c", "d"}), (std::vector<Bytes>{bytes("z!"), bytes("1"), bytes("2")}));
  EXPECT_THROW(store_->multiSet({"c"}, {}), c10::ValueError);
  store_->queuePush("q", bytes("1"));
  EXPECT_EQ(store_->queueLen("q"), 1);
  EXPECT_EQ(store_->queuePop("q", false), bytes("1"));
  EXPECT_THROW(store_->queuePop("q", false), c10::DistQueueEmptyError);
}

TEST_P(TorchStoreTest, TimeoutsAreC10dsOwnErrors) {
  store_->setTimeout(30ms);
  EXPECT_EQ(store_->getTimeout(), 30ms);
  EXPECT_THROW(store_->get("never"), c10::DistStoreError);
  EXPECT_THROW(store_->wait({"never"}), c10::DistStoreError);
  EXPECT_THROW(store_->wait({"never"}, 10ms), c10::DistStoreError);
  EXPECT_THROW(store_->queuePop("never", true), c10::DistStoreError);
  EXPECT_EQ(store_->clone()->getTimeout(), 30ms);
}

TEST_P(TorchStoreTest, ZeroMeansForEver) {
  store_->setTimeout(c10d::Store::kNoTimeout);
  std::thread other([clone = store_->clone()] {
    std::this_thread::sleep_for(30ms);
    clone->set("late", bytes("1"));
  });
  EXPECT_EQ(store_->get("late"), bytes("1"));
  other.join();
}

TEST_P(TorchStoreTest, ACloneWorksWhileTheOtherWaits) {
  std::thread waiting([this] { store_->wait({"go"}, 60s); });
  std::this_thread::sleep_for(50ms);  // so that it is inside, most of the time
  const auto clone = store_->clone();
  for (int i = 0; i < 10; ++i) clone->add("n", 1);
  clone->set("go", bytes(""));
  waiting.join();
  EXPECT_EQ(c10::make_intrusive<c10d::PrefixStore>("p", clone)->add("n", 3), 3);
}

TEST_P(TorchStoreTest, ALostServerIsANetworkError) {
  if (!GetParam()) return;
  server_.reset();
  EXPECT_THROW(store_->set("a", bytes("1")), c10::DistNetworkError);
}

}  // namespace
}  // namespace lockstep::comm
