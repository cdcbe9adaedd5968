// One table of behaviours, held against every kind of store.
#include "lockstep/comm/store/store.h"

#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "lockstep/comm/store/store_testing.h"

namespace lockstep::comm {
namespace {

struct Kind {
  std::string name;
  std::function<std::unique_ptr<Store>(TestServer*)> open;
  StoreServerOptions server;
};

std::vector<Kind> kinds() {
  const auto remote = [](TestServer* server) { return server->connect(); };
  StoreServerOptions plain, tls, six;
  tls.tls = true;
  six.address = "::1";
  return {
      {"local", [](TestServer*) { return make_local_store(); }, plain},
      {"client", remote, plain},
      {"tls", remote, tls},
      {"ipv6", remote, six},
      {"prefix", [](TestServer* server) { return with_prefix(server->connect(), "group"); }, plain},
  };
}

class StoreTest : public testing::TestWithParam<Kind> {
 protected:
  StoreTest() : server_(GetParam().server), store_(GetParam().open(&server_)) {}
  TestServer server_;
  std::unique_ptr<Store> store_;
};

INSTANTIATE_TEST_SUITE_P(Kinds, StoreTest, testing::ValuesIn(kinds()),
                         [](const auto& row) { return row.param.name; });

TEST_P(StoreTest, KeepsBytesAsTheyAre) {
  std::string every_byte;
  for (int i = 0; i < 256; ++i) every_byte.push_back(static_cast<char>(i));
  for (const std::string& value : {std::string(), every_byte, std::string(1 << 20, 'x')}) {
    store_->set(every_byte, value);
    EXPECT_EQ(store_->get(every_byte, 1s), value);
    EXPECT_EQ(store_->try_get(every_byte), value);
  }
  store_->set("", "the empty key");
  EXPECT_EQ(store_->get("", 1s), "the empty key");
}

TEST_P(StoreTest, TryGetDoesNotWait) { EXPECT_EQ(store_->try_get("absent"), std::nullopt); }

TEST_P(StoreTest, AddsFromZeroAndBelow) {
  EXPECT_EQ(store_->add("n", 5), 5);
  EXPECT_EQ(store_->add("n", -7), -2);
  EXPECT_EQ(store_->add("n", 0), -2);
  EXPECT_EQ(store_->get("n", 1s), "-2");
}

TEST_P(StoreTest, RefusesToAddToWhatIsNoNumber) {
  store_->set("word", "12 apples");
  EXPECT_NE(base::refusal(516, [&] { store_->add("word", 1); }).find("\"12 apples\""), std::string::npos);
  store_->set("large", "9223372036854775807");
  base::refusal(516, [&] { store_->add("large", 1); });
  EXPECT_EQ(store_->get("large", 1s), "9223372036854775807");
}

TEST_P(StoreTest, ComparesBeforeItSets) {
  EXPECT_EQ(store_->compare_set("k", "not this", "a"), "not this");
  EXPECT_FALSE(store_->check({"k"}));
  EXPECT_EQ(store_->compare_set("k", "", "a"), "a");
  EXPECT_EQ(store_->compare_set("k", "x", "b"), "a");
  EXPECT_EQ(store_->compare_set("k", "a", "b"), "b");
  EXPECT_EQ(store_->get("k", 1s), "b");
}

TEST_P(StoreTest, Appends) {
  store_->append("log", "one,");
  store_->append("log", "two");
  EXPECT_EQ(store_->get("log", 1s), "one,two");
}

TEST_P(StoreTest, ChecksAndRemoves) {
  store_->set("a", "1");
  EXPECT_TRUE(store_->check({}));
  EXPECT_TRUE(store_->check({"a"}));
  EXPECT_FALSE(store_->check({"a", "b"}));
  EXPECT_TRUE(store_->remove("a"));
  EXPECT_FALSE(store_->remove("a"));
  EXPECT_FALSE(store_->check({"a"}));
}

TEST_P(StoreTest, ListsKeysButNotQueues) {
  store_->push("queue", "1");
  store_->set("b", "1");
  store_->set("a", "1");
  EXPECT_EQ(store_->keys(), (std::vector<std::string>{"a", "b"}));
}

TEST_P(StoreTest, QueuesAreFirstInFirstOut) {
  EXPECT_EQ(store_->pop("q", 0ms), std::nullopt);
  store_->push("q", "1");
  store_->push("q", "2");
  EXPECT_EQ(store_->queue_length("q"), 2);
  EXPECT_EQ(store_->pop("q", 0ms), "1");
  EXPECT_EQ(store_->pop("q", 1s), "2");
  EXPECT_EQ(store_->queue_length("q"), 0);
  EXPECT_EQ(store_->pop("q", 20ms), std::nullopt);
}

TEST_P(StoreTest, AWaitInVainNamesWhatIsMissing) {
  store_->set("here", "1");
  const auto begin = std::chrono::steady_clock::now();
  const std::string sentence = base::refusal(510, [&] { store_->wait({"lost", "here", "also lost"}, 50ms); });
  EXPECT_GE(std::chrono::steady_clock::now() - begin, 50ms);
  EXPECT_NE(sentence.find("lost\""), std::string::npos) << sentence;
  EXPECT_NE(sentence.find("also lost\""), std::string::npos) << sentence;
  EXPECT_EQ(sentence.find("here\""), std::string::npos) << sentence;
  EXPECT_NE(sentence.find("50 ms"), std::string::npos) << sentence;
  base::refusal(510, [&] { store_->get("lost", 0ms); });
  base::refusal(510, [&] { store_->get("lost", -5ms); });
  store_->set("lost", "1");  // the connection is as good as before
  EXPECT_EQ(store_->get("lost", 0ms), "1");
}

TEST_P(StoreTest, EveryKindOfChangeEndsAWait) {
  const std::vector<std::pair<std::string, std::function<void(Store&)>>> changes = {
      {"set", [](Store& store) { store.set("set", "1"); }},
      {"add", [](Store& store) { store.add("add", 1); }},
      {"append", [](Store& store) { store.append("append", "1"); }},
      {"compare_set", [](Store& store) { store.compare_set("compare_set", "", "1"); }},
  };
  for (const auto& [key, change] : changes) {
    std::thread other([&, clone = store_->clone()] {
      std::this_thread::sleep_for(20ms);
      change(*clone);
    });
    EXPECT_EQ(store_->get(key, 10s), "1");
    other.join();
  }
}

TEST_P(StoreTest, WaitsForKeysThatComeInAnyOrder) {
  std::thread other([clone = store_->clone()] {
    for (const char* key : {"c", "a", "d", "b"}) {
      std::this_thread::sleep_for(5ms);
      clone->set(key, "");
    }
  });
  store_->wait({"a", "b", "c", "d", "a"}, 10s);
  EXPECT_TRUE(store_->check({"a", "b", "c", "d"}));
  other.join();
}

TEST_P(StoreTest, AValueGoesToOneTakerOnly) {
  constexpr int kTakers = 6;
  std::atomic<int> got = 0, sum = 0;
  std::vector<std::thread> takers;
  for (int i = 0; i < kTakers; ++i) {
    takers.emplace_back([&, clone = store_->clone()] {
      if (const auto value = clone->pop("work", 10s)) ++got, sum += std::stoi(*value);
    });
  }
  for (int i = 1; i <= kTakers; ++i) store_->push("work", std::to_string(i));
  for (std::thread& taker : takers) taker.join();
  EXPECT_EQ(got, kTakers);
  EXPECT_EQ(sum, kTakers * (kTakers + 1) / 2);
  EXPECT_EQ(store_->queue_length("work"), 0);
}

TEST_P(StoreTest, ManyClientsMeetAtABarrier) {
  constexpr int kClients = 24, kRounds = 5;
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < kClients; ++rank) {
    ranks.emplace_back([clone = store_->clone()] {
      for (int round = 0; round < kRounds; ++round) {
        const std::string key = "barrier-" + std::to_string(round);
        if (clone->add(key, 1) == kClients) clone->set(key + "/done", "1");
        clone->wait({key + "/done"}, 20s);
        EXPECT_EQ(clone->get(key, 0ms), std::to_string(kClients));
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
}

TEST_P(StoreTest, RefusesKeysThatAreTooLong) {
  base::refusal(516, [&] { store_->set(std::string(9000, 'k'), "v"); });
  base::refusal(516, [&] { store_->push(std::string(9000, 'k'), "v"); });
  store_->set("still", "here");
  EXPECT_EQ(store_->get("still", 1s), "here");
}

// Random calls give on a server what they give in this process.
TEST_P(StoreTest, AgreesWithALocalStoreOnRandomCalls) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  const auto below = [&](uint64_t most) { return random() % most; };
  const std::unique_ptr<Store> model = make_local_store();
  const auto both = [&](auto call) {
    const auto result = [&](Store& store) -> std::string {
      try {
        return call(store);
      } catch (const base::Error& error) {
        return base::code_name(error.number());
      }
    };
    ASSERT_EQ(result(*store_), result(*model));
  };
  for (int i = 0; i < 600; ++i) {
    const std::string key = "k" + std::to_string(below(6)), value = std::to_string(below(4));
    const std::string expected = below(3) ? std::to_string(below(4)) : "";
    switch (below(9)) {
      case 0:
        both([&](Store& s) { return s.set(key, value), ""; });
        break;
      case 1:
        both([&](Store& s) { return s.try_get(key).value_or("none"); });
        break;
      case 2:
        both([&](Store& s) { return std::to_string(s.add(key, 3)); });
        break;
      case 3:
        both([&](Store& s) { return s.compare_set(key, expected, value); });
        break;
      case 4:
        both([&](Store& s) { return s.append(key, value), ""; });
        break;
      case 5:
        both([&](Store& s) { return std::to_string(s.remove(key)); });
        break;
      case 6:
        both([&](Store& s) { return s.push(key, value), std::to_string(s.queue_length(key)); });
        break;
      case 7:
        both([&](Store& s) { return s.pop(key, 0ms).value_or("none"); });
        break;
      case 8:
        both([&](Store& s) { return base::join(s.keys(), " ") + s.get(key, 0ms); });
        break;
    }
    if (HasFatalFailure()) return;
  }
}

TEST(PrefixStore, ShowsOnlyWhatIsBelowIt) {
  const std::unique_ptr<Store> whole = make_local_store();
  const std::unique_ptr<Store> a = with_prefix(whole->clone(), "a"), ab = with_prefix(whole->clone(), "ab");
  a->set("x", "of a");
  ab->set("x", "of ab");
  EXPECT_EQ(a->get("x", 0ms), "of a");
  EXPECT_EQ(a->keys(), std::vector<std::string>{"x"});
  EXPECT_EQ(whole->keys(), (std::vector<std::string>{"a/x", "ab/x"}));
  a->clone()->push("q", "1");
  EXPECT_EQ(whole->queue_length("a/q"), 1);
}

}  // namespace
}  // namespace lockstep::comm
