// Small recipes and sessions for the tests of this folder.
#pragma once

#include <chrono>
#include <cstdlib>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/data/loader.h"
#include "lockstep/run/session/session.h"

namespace lockstep::run {

// LOCKSTEP_TEST_DEVICE=cuda runs the same tests on a GPU (`./dev test --gpu`).
inline std::string test_device() {
  const char* requested = std::getenv("LOCKSTEP_TEST_DEVICE");
  return requested != nullptr ? requested : "cpu";
}

// For tests that look into memory by pointer.
#define LS_NEEDS_HOST_MEMORY() \
  if (lockstep::run::test_device() != "cpu") GTEST_SKIP() << "looks into memory by pointer: only on the CPU"

// For tests that compare results which would be equal without rounding.
inline std::vector<std::string> without_rounding() {
  if (test_device() == "cpu") return {};
  return {"precision.compute=fp32", "precision.tf32=false"};
}

// A model of a few thousand parameters on the grammar, changed by overrides.
inline recipe::Resolved tiny_recipe(std::vector<std::string> overrides = {}) {
  std::vector<std::string> all = {"run.device=" + test_device(),
                                  "model.layers=2",
                                  "model.hidden=16",
                                  "model.heads=2",
                                  "data.seq_len=8",
                                  "batch.global=8",
                                  "batch.slices=4",
                                  "optim.warmup=0",
                                  "optim.lr=0.01"};
  all.insert(all.end(), overrides.begin(), overrides.end());
  return recipe::read_recipe({.file = "", .overrides = all});
}

inline Session tiny_session(std::vector<std::string> overrides = {}) {
  return Session(make_plan(tiny_recipe(std::move(overrides)), {}));
}

inline data::Batch batch_of(const Session& session, int64_t step) {
  const recipe::Recipe& r = session.plan.recipe();
  return data::read_batch(*session.plan.dataset,
                          {.seed = static_cast<uint64_t>(r.run.seed),
                           .global = r.batch.global,
                           .slices = r.batch.slices.value,
                           .own_slices = {},
                           .seq_len = r.data.seq_len},
                          step);
}

// The sums of a block's gradients, as the last step left them.
inline device::Tensor gradient_of_block(const Session& session, size_t block) {
  return session.memory->tensor(session.plan.program.blocks[block].gradients[0]);
}

// One step with the given learning rate; returns the state after it.
inline kernels::StepState one_step(Session& session, int64_t step, float learning_rate) {
  const data::Batch batch = batch_of(session, step);
  session.executor->step({.seed = static_cast<uint64_t>(session.plan.recipe().run.seed),
                          .step = static_cast<uint64_t>(step),
                          .learning_rate = learning_rate,
                          .valid_tokens = static_cast<double>(batch.valid_labels)},
                         {batch.inputs, batch.labels, batch.documents, batch.references});
  return session.executor->read_oldest();
}

inline std::string hash_after(Session& session, int64_t steps, float learning_rate = 0.01f) {
  for (int64_t step = 0; step < steps; ++step) one_step(session, step, learning_rate);
  return session.parameters->hash();
}

// Every rank is a thread; what one throws is thrown here. `per_node`: as if so many stood on each node.
inline void on_ranks(int world, const std::string& engine, const std::function<void(comm::World&)>& body,
                     int per_node = 0) {
  const std::unique_ptr<comm::Store> store = comm::make_local_store();
  std::vector<std::exception_ptr> errors(static_cast<size_t>(world));
  std::vector<std::thread> threads;
  for (int r = 0; r < world; ++r) {
    threads.emplace_back([&, r, clone = std::shared_ptr<comm::Store>(store->clone())] {
      try {
        comm::WorldOptions options;
        const int here = per_node > 0 ? per_node : world;
        options.seat = {.rank = r,
                        .world = world,
                        .local_rank = r % here,
                        .local_world = here,
                        .node = r / here,
                        .nodes = world / here};
        options.engine = engine;
        options.timeout = options.join_timeout = std::chrono::seconds(60);
        comm::World one = world == 1 ? comm::World() : comm::World(options, clone->clone());
        body(one);
      } catch (...) {
        errors[static_cast<size_t>(r)] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

}  // namespace lockstep::run
