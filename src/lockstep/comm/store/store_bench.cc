// What the store costs: a round trip, a connection with its handshake, and a barrier of many ranks.
#include <benchmark/benchmark.h>

#include <thread>

#include "lockstep/comm/store/store_server.h"

namespace lockstep::comm {
namespace {

using namespace std::chrono_literals;

struct Pair {
  explicit Pair(bool tls) : secret(Secret::random()), server({.secret = secret, .tls = tls}) {
    client = {
        .endpoint = server.endpoint(), .secret = secret, .tls = tls, .connect_timeout = 10s, .who = "bench"};
  }
  Secret secret;
  StoreServer server;
  StoreClientOptions client;
};

void round_trip(benchmark::State& state, bool tls) {
  Pair pair(tls);
  const std::unique_ptr<Store> store = connect_store(pair.client);
  const std::string value(static_cast<size_t>(state.range(0)), 'x');
  for (auto _ : state) store->set("key", value);
  state.SetBytesProcessed(state.iterations() * state.range(0));
}
BENCHMARK_CAPTURE(round_trip, plain, false)->Arg(16)->Arg(1 << 20)->UseRealTime();
BENCHMARK_CAPTURE(round_trip, tls, true)->Arg(16)->Arg(1 << 20)->UseRealTime();

void connect(benchmark::State& state, bool tls) {
  Pair pair(tls);
  for (auto _ : state) connect_store(pair.client);
}
BENCHMARK_CAPTURE(connect, plain, false)->UseRealTime();
BENCHMARK_CAPTURE(connect, tls, true)->UseRealTime();

// Every rank counts itself in and waits for the last: the way a run begins.
void barrier(benchmark::State& state) {
  Pair pair(false);
  const int64_t ranks = state.range(0);
  std::vector<std::unique_ptr<Store>> stores;
  for (int64_t i = 0; i < ranks; ++i) stores.push_back(connect_store(pair.client));
  int64_t round = 0;
  for (auto _ : state) {
    const std::string key = "round" + std::to_string(round++);
    std::vector<std::thread> threads;
    for (const auto& store : stores) {
      threads.emplace_back([&] {
        if (store->add(key, 1) == ranks) store->set(key + "/all", "");
        store->wait({key + "/all"}, 60s);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
}
BENCHMARK(barrier)->Arg(16)->Arg(1000)->UseRealTime()->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace lockstep::comm
