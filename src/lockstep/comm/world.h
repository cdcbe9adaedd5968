// The world: all ranks of a run, as this process sees them.
//
// The launcher tells each rank who it is through torchrun's environment (RANK, WORLD_SIZE, LOCAL_RANK, ...)
// and where the store is (LOCKSTEP_STORE, LOCKSTEP_SECRET_FD). World connects, makes the consistency check
// (every rank says its build, recipe and numerics; the first that differs is named), and makes groups.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/comm/engine.h"

namespace lockstep::comm {

struct Seat {
  int rank = 0, world = 1;
  int local_rank = 0, local_world = 1;
  int node = 0, nodes = 1;
};

struct WorldOptions {
  Seat seat;
  std::string engine = "auto";
  std::string interface;
  Duration timeout{600000};                          // of every collective
  Duration join_timeout{300000};                     // until every rank has come
  std::function<void(const std::string&)> say = {};  // who is waited for
};

class World {
 public:
  // One rank, no store.
  World();
  World(WorldOptions options, std::unique_ptr<Store> store);
  ~World();

  const Seat& seat() const { return options_.seat; }
  int rank() const { return options_.seat.rank; }
  int size() const { return options_.seat.world; }
  bool first() const { return rank() == 0; }
  Store& store() { return *store_; }
  Duration timeout() const { return options_.timeout; }  // of every collective

  // Before the first group: which engine is wanted, and how long a collective may take.
  void use(const std::string& engine, Duration timeout) {
    options_.engine = engine, options_.timeout = timeout;
  }

  // Every rank gives the same list of {what, value}; ConfigError 523 names the first that differs, and on
  // which rank: "rank 2 has optim.lr = 0.1, rank 0 has 0.2". Two processes with one number are ConfigError
  // 528. Waiting for a rank that does not come is CommError 521 with its number.
  void check_consistency(const std::vector<std::pair<std::string, std::string>>& facts);

  // Collective over `ranks`. A group of one is made without anybody. Groups must not outlive the world's
  // arena.
  std::unique_ptr<Group> group(const std::string& name, const std::vector<int>& ranks,
                               device::Device& device);
  SharedArena& arena();

 private:
  WorldOptions options_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<SharedArena> arena_;
  int calls_ = 0;  // of the roll
};

}  // namespace lockstep::comm
