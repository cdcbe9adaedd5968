// Faults put into real step programs: verify's comparison must be red and name the block that is wrong.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>

#include "lockstep/base/file.h"
#include "lockstep/base/temporary_folder.h"
#include "lockstep/run/loop/trainer.h"
#include "lockstep/run/saving/saver.h"
#include "lockstep/run/session/load.h"
#include "lockstep/run/testing.h"
#include "lockstep/verify/compare.h"

namespace lockstep::verify {
namespace {

using program::Among;
using program::Instruction;

constexpr int kBlock = 3;  // layer 2 of 4

struct Fault {
  const char* name;
  int world;
  std::vector<std::string> layout;
  bool (*hit)(const program::Program&, const Instruction&);
  void (*make)(Instruction&);  // null: it is left out
};

bool is_backward(const program::Program& program, const Instruction& i) {
  return program.buffers[static_cast<size_t>(i.writes[0].buffer)].kind == program::BufferKind::dedge;
}

const Fault kFaults[] = {
    {"a skipped reduction",
     2,
     {"parallel.bucket_mib=0.0"},
     [](const program::Program&, const Instruction& i) {
       return i.is<program::ReduceGradients>() && i.among == Among::replica && i.block == kBlock;
     },
     nullptr},
    {"a sum that is left out of the backward pass",
     2,
     {"parallel.tensor=2"},
     [](const program::Program& program, const Instruction& i) {
       return i.is<program::SumValues>() && i.block == kBlock && is_backward(program, i);
     },
     nullptr},
    {"keys' gradients that go round the wrong way",
     4,
     {"parallel.context=4"},
     [](const program::Program& program, const Instruction& i) {
       const auto* ring = i.get<program::ShiftRing>();
       return ring != nullptr && !ring->onward && i.block == kBlock && is_backward(program, i);
     },
     [](Instruction& i) { i.get<program::ShiftRing>()->onward = true; }},
    {"a slice that is folded with the wrong scale",
     2,
     {"parallel.pipeline=2"},
     [](const program::Program&, const Instruction& i) {
       const auto* run = i.get<program::RunSegment>();
       return i.runs(program::Pass::backward_weight) && i.block == kBlock && run->accumulate;
     },
     [](Instruction& i) { i.get<program::RunSegment>()->accumulate = false; }},
};

struct Metrics : run::Observer {
  explicit Metrics(const std::string& folder) : lines(folder + "/metrics.jsonl") {}
  base::LineWriter lines;
  void stepped(const run::StepReport& r) override {
    lines.write(fmt::format(R"({{"step":{},"loss":{},"loss_hex":"{:a}","grad_norm":{},"mem_gib":{}}})",
                            r.step, r.loss, r.loss, r.grad_norm, r.memory_gib));
  }
};

recipe::Resolved recipe(const std::vector<std::string>& layout) {
  std::vector<std::string> words = {"run.steps=1",     "model.layers=4",  "model.heads=4",
                                    "model.hidden=32", "data.seq_len=16", "batch.global=16",
                                    "batch.slices=8",  "batch.strands=4", "log.eval_every=0",
                                    "optim.clip=0.0"};  // ranks whose norms differ would clip differently
  words.insert(words.end(), layout.begin(), layout.end());
  return run::tiny_recipe(words);
}

Run train(int world, const std::vector<std::string>& layout, const std::string& folder, const Fault* fault) {
  base::make_folders(folder);
  std::atomic<int> made = 0;
  run::on_ranks(world, "shm", [&](comm::World& one) {
    run::Ranks ranks(one);
    run::Plan plan = run::make_plan(recipe(layout), {}, run::for_this(ranks));
    if (fault != nullptr) {
      std::vector<Instruction> list;
      for (Instruction& i : plan.program.instructions) {
        const bool hit = fault->hit(plan.program, i);
        made += hit ? 1 : 0;
        if (hit && fault->make != nullptr) fault->make(i);
        if (!hit || fault->make != nullptr) list.push_back(i);
      }
      plan.program.instructions = std::move(list);
    }
    run::Session session(std::move(plan), &ranks);
    base::TemporaryFolder elsewhere;
    Metrics metrics(one.rank() == 0 ? folder : elsewhere.path());
    run::TrainOptions options;
    options.save_every = 1;
    options.save = [&](int64_t step) { run::save_checkpoint(session, folder, step); };
    run::train(session, options, metrics);
  });
  EXPECT_TRUE(fault == nullptr || made > 0);
  return read_run(folder);
}

TEST(Injection, IsNoticedAndTheBlockIsNamed) {
  base::TemporaryFolder folder;
  const recipe::Recipe small = [] {
    recipe::Resolved resolved = recipe({});
    return run::make_plan(resolved, {}).resolved.recipe;
  }();
  const std::vector<BlockNames> blocks = blocks_of(small);
  const verify::Run one = train(1, {}, folder.path() + "/one", nullptr);
  int number = 0;
  for (const Fault& fault : kFaults) {
    SCOPED_TRACE(fault.name);
    const std::string place = fmt::format("{}/{}", folder.path(), number++);
    const Tolerance tolerance{.bitwise = false, .loss = 1e-5, .gradient = 1e-4};
    const verify::Run sound = train(fault.world, fault.layout, place + "-sound", nullptr);
    EXPECT_TRUE(compare(one, sound, blocks, small, tolerance).within(tolerance));
    const verify::Run wrong = train(fault.world, fault.layout, place + "-wrong", &fault);
    const Difference difference = compare(one, wrong, blocks, small, tolerance);
    EXPECT_FALSE(difference.within(tolerance));
    ASSERT_TRUE(difference.blame.has_value());
    EXPECT_EQ(difference.blame->block, kBlock) << difference.blame->tensor;
  }
}

}  // namespace
}  // namespace lockstep::verify
