// Ranks for tests: a function run by several ranks that are threads of this process or forked children.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/comm/engine.h"
#include "lockstep/comm/store/store.h"
#include "lockstep/comm/store/store_server.h"

namespace lockstep::comm::testing {

// What a rank of a test is given.
struct TestRank {
  int rank = 0, size = 1;
  Store* store = nullptr;
};
using RankBody = std::function<void(const TestRank&)>;

// Every rank is a thread. What it throws fails the test.
inline void run_threads(int size, const RankBody& body) {
  const std::unique_ptr<Store> store = make_local_store();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      const std::unique_ptr<Store> own = store->clone();
      try {
        body({rank, size, own.get()});
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << rank << ": " << error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Every rank is a forked child; its exit status is 0 when its body returned and nothing failed in it.
// Children must not outlive a test that dies, so each has an alarm.
class ForkedRanks {
 public:
  ForkedRanks(int size, const RankBody& body)
      : secret_(Secret::random()), server_([this] {
          StoreServerOptions options;
          options.secret = secret_;
          return options;
        }()) {
    // Nobody connects before all have been forked: a lock that the server's thread holds at that moment
    // would never be given back in the child.
    int gate[2] = {-1, -1};
    EXPECT_EQ(::pipe(gate), 0);
    std::fflush(nullptr);
    for (int rank = 0; rank < size; ++rank) {
      const pid_t child = ::fork();
      if (child == 0) {
        ::alarm(120);
        ::close(gate[1]);
        char open = 0;
        [[maybe_unused]] const ssize_t none = ::read(gate[0], &open, 1);  // its end: the gate is open
        int status = 1;
        try {
          const std::unique_ptr<Store> store = connect();
          body({rank, size, store.get()});
          status = ::testing::Test::HasFailure() ? 1 : 0;
        } catch (const std::exception& error) {
          std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
        }
        std::fflush(nullptr);
        ::_exit(status);
      }
      children_.push_back(child);
    }
    ::close(gate[0]);
    ::close(gate[1]);
  }
  ~ForkedRanks() {
    for (const pid_t child : children_) {
      if (child > 0) ::kill(child, SIGKILL), ::waitpid(child, nullptr, 0);
    }
  }
  pid_t pid(int rank) const { return children_[static_cast<size_t>(rank)]; }
  std::unique_ptr<Store> connect() const {
    StoreClientOptions options;
    options.endpoint = server_.endpoint();
    options.secret = secret_;
    return connect_store(options);
  }

  int join(int rank) {  // its wait status
    int status = 0;
    ::waitpid(children_[static_cast<size_t>(rank)], &status, 0);
    children_[static_cast<size_t>(rank)] = -1;
    return status;
  }
  void expect_all_well() {
    for (size_t rank = 0; rank < children_.size(); ++rank)
      EXPECT_EQ(join(static_cast<int>(rank)), 0) << "rank " << rank;
  }

 private:
  Secret secret_;
  StoreServer server_;
  std::vector<pid_t> children_;
};

inline GroupOptions options_of(const TestRank& at, const std::string& name,
                               Duration timeout = Duration(20000)) {
  GroupOptions options;
  options.name = name;
  for (int q = 0; q < at.size; ++q) options.ranks.push_back(q);
  options.self = at.rank;
  options.timeout = timeout;
  return options;
}

}  // namespace lockstep::comm::testing
