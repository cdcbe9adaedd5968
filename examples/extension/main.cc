// Trains with a family, a dataset, an optimizer and an engine of this program's own, on one rank and on two,
// and holds what comes out against what is built in. Exits with 1 where something is not as it should be.
#include <cmath>
#include <cstdio>
#include <exception>
#include <functional>
#include <thread>

#include "extension.h"
#include "lockstep/lockstep.h"

namespace ls = lockstep;
using Words = std::vector<std::string>;

namespace {

int failures = 0;

void expect(bool holds, const std::string& what) {
  std::printf("%s  %s\n", holds ? "ok  " : "FAIL", what.c_str());
  failures += holds ? 0 : 1;
}

Words with(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

// Every rank is a thread; what rank 0 has at the end. (Processes join with launch::join() instead.)
ls::run::Summary train(int ranks, const Words& words) {
  const std::unique_ptr<ls::comm::Store> store = ls::comm::make_local_store();
  const ls::recipe::Resolved recipe = ls::recipe::read_recipe({.overrides = words});
  std::vector<std::exception_ptr> errors(static_cast<size_t>(ranks));
  ls::run::Summary summary;
  const auto body = [&](int rank, std::unique_ptr<ls::comm::Store> own) {
    ls::comm::WorldOptions options;
    options.seat = {.rank = rank, .world = ranks, .local_rank = rank, .local_world = ranks};
    options.engine = recipe.recipe.parallel.engine;
    ls::comm::World world = ranks == 1 ? ls::comm::World() : ls::comm::World(options, std::move(own));
    ls::run::Ranks all(world);
    ls::run::Session session(ls::run::make_plan(recipe, {}, ls::run::for_this(all)), &all);
    ls::run::Observer nobody;
    const ls::run::Summary mine = ls::run::train(session, {}, nobody);
    if (rank == 0) summary = mine;
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank, own = std::shared_ptr<ls::comm::Store>(store->clone())] {
      try {
        body(rank, own->clone());
      } catch (...) {
        errors[static_cast<size_t>(rank)] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
  return summary;
}

std::string refusal(const std::function<void()>& act) {
  try {
    act();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// What is registered is a choice like any other.
void check_schema() {
  const std::string schema = ls::recipe::json_schema();
  for (const char* name : {"gated", "counting", "heavy_ball", "factored", "mailbox"})
    expect(contains(schema, std::string("\"") + name + "\""), std::string("the JSON Schema knows ") + name);
  expect(contains(refusal([] { ls::recipe::read_recipe({.overrides = {"model.family=gatet"}}); }),
                  "did you mean gated"),
         "a misspelt name is set right");
  expect(ls::recipe::find_key("optim.momentum")->counts.when == "optim.name = sgd or muon or heavy_ball",
         "optim.momentum counts with the optimizers that read it");
  expect(contains(refusal([] { ls::comm::register_engine(mailbox_engine()); }), "after the table was read"),
         "a table that was read takes no more rows");
}

void check_training(const Words& base) {
  const Words own = with(base, {"model.family=gated", "data.kind=counting"});
  const ls::run::Summary one = train(1, own);
  expect(one.finished && one.last_loss < 2,
         "the family learns to count: loss " + std::to_string(one.last_loss));
  for (const char* engine : {"mailbox", "shm"}) {
    const ls::run::Summary two = train(2, with(own, {std::string("parallel.engine=") + engine}));
    expect(two.params_hash == one.params_hash,
           std::string("two ranks over ") + engine + " have the bits of one: " + two.params_hash);
  }
  const ls::run::Summary shared = train(2, with(own, {"parallel.engine=mailbox", "parallel.zero=3"}));
  expect(shared.params_hash == one.params_hash, "and so they have with shards of weights");
  const std::string why = refusal([&] {
    train(3, with(own, {"parallel.engine=mailbox", "batch.strands=3"}));
  });
  expect(contains(why, "engine mailbox cannot be used: a mailbox is for two; use auto or gloo [LS0522]"),
         "an engine that cannot serve is refused: " + why);
}

void check_optimizer(const Words& base) {
  const Words sgd = with(base, {"model.family=mlp", "optim.name=sgd", "optim.lr=0.05"});
  const ls::run::Summary known = train(2, sgd);
  const ls::run::Summary own = train(2, with(sgd, {"optim.name=heavy_ball"}));
  // The same formula; the built-in one is compiled for wider registers, where products and sums round once.
  expect(std::abs(own.last_loss - known.last_loss) < 1e-3 * known.last_loss,
         "heavy_ball follows sgd: loss " + std::to_string(own.last_loss) + " and " +
             std::to_string(known.last_loss));
  expect(train(1, with(sgd, {"optim.name=heavy_ball"})).params_hash == own.params_hash,
         "and has the same bits on one rank");
}

// State of any shape, matrices that are never cut, and groups that ask for it by name.
void check_whole_matrices(const Words& base) {
  const Words own = with(base, {"model.family=gated", "data.kind=counting", "optim.name=factored"});
  const ls::run::Summary one = train(1, own);
  expect(one.finished && one.last_loss < 2,
         "factored learns to count: loss " + std::to_string(one.last_loss));
  for (const char* zero : {"1", "2", "3"}) {
    const ls::run::Summary two = train(2, with(own, {std::string("parallel.zero=") + zero}));
    expect(two.params_hash == one.params_hash,
           std::string("and has the same bits on two ranks with parallel.zero=") + zero);
  }
  const Words mixed = with(own, {"optim.name=adamw", "optim.groups=layers.* kind=factored lr_scale=0.5",
                                 "tune.freeze=layers.0.norm.*"});
  expect(train(2, with(mixed, {"parallel.zero=2"})).params_hash == train(1, mixed).params_hash,
         "and so it has for a group, beside adamw and what is frozen");
}

}  // namespace

int main() try {
  ls::model::register_family(gated_family());
  ls::data::register_dataset(counting_data());
  ls::optim::register_optimizer(heavy_ball());
  ls::optim::register_optimizer(factored());
  ls::comm::register_engine(mailbox_engine());

  const Words base{"run.device=cpu",  "run.threads=1",   "run.steps=100",   "model.layers=2",
                   "model.hidden=32", "data.seq_len=16", "batch.global=24", "batch.slices=6",
                   "batch.strands=6", "optim.warmup=4",  "optim.lr=0.01",   "log.eval_every=0"};
  check_schema();
  check_training(base);
  check_optimizer(base);
  check_whole_matrices(base);
  return failures == 0 ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "error: %s\n", error.what());
  return 1;
}
