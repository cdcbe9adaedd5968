#include "lockstep/run/memory_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/program/nodes.h"

namespace lockstep::run {

using base::human_bytes;

static bool has_segment(const model::Model& model, const std::string& name) {
  return std::any_of(model.blocks.begin(), model.blocks.end(), [&](const model::Block& block) {
    return std::any_of(block.segments().begin(), block.segments().end(),
                       [&](const auto& segment) { return segment->name() == name; });
  });
}

// Gradients of a block that the update reads, or that are added to them.
static bool is_sum(const Plan& plan, const program::Buffer& buffer) {
  const std::vector<int>& sums = plan.program.blocks[static_cast<size_t>(buffer.block)].gradients;
  const auto index = static_cast<int>(&buffer - plan.program.buffers.data());
  return std::find(sums.begin(), sums.end(), index) != sums.end();
}

// What a buffer that lives inside a step is to a user.
static std::string name_of(const Plan& plan, const program::Buffer& buffer) {
  const bool staging = buffer.kind == program::BufferKind::scratch && buffer.block < 0;
  if (staging) return "what other ranks sent";
  const std::string block =
      buffer.block < 0 ? "batch" : plan.model->blocks[static_cast<size_t>(buffer.block)].name();
  switch (buffer.kind) {
    case program::BufferKind::compute:
      return "gathered weights: " + block;
    case program::BufferKind::gradient:
      return is_sum(plan, buffer) ? "gradients" : "gradients to reduce: " + block;
    case program::BufferKind::workspace:
      return "workspace";
    default:
      return "activations: " + block;
  }
}

std::vector<MemoryRow> memory_rows(const Plan& plan) {
  std::vector<MemoryRow> rows;
  for (const auto& [kind, bytes] : plan.memory.persistent_by_kind)
    rows.push_back({program::name_of(kind), bytes});
  std::map<std::string, int64_t> by_name;
  const std::vector<program::Lifetime> lives = program::lifetimes(plan.program);
  for (size_t b = 0; b < plan.program.buffers.size(); ++b) {
    const program::Buffer& buffer = plan.program.buffers[b];
    const bool alive =
        lives[b].first <= plan.memory.peak_instruction && plan.memory.peak_instruction <= lives[b].last;
    if (!buffer.persistent && alive && lives[b].first >= 0) by_name[name_of(plan, buffer)] += buffer.bytes();
  }
  for (const auto& [name, bytes] : by_name) rows.push_back({name, bytes});
  std::stable_sort(rows.begin(), rows.end(),
                   [](const MemoryRow& a, const MemoryRow& b) { return a.bytes > b.bytes; });
  return rows;
}

std::vector<Remedy> remedies(const Plan& plan) {
  std::vector<Remedy> found;
  const base::Recipe& recipe = plan.recipe();
  const auto consider = [&](std::string change, int64_t slices, const std::string& recompute,
                            std::string price) {
    program::MemoryPlan memory;
    compile_for(plan, slices, recompute, memory);
    if (memory.peak_bytes() < plan.memory.peak_bytes())
      found.push_back({std::move(change), memory.peak_bytes(), std::move(price)});
  };
  const int64_t slices = recipe.batch.slices.value;
  for (const int64_t factor : {2, 4, 8}) {
    const int64_t more = slices * factor;
    if (recipe.batch.global % more == 0) {
      consider(fmt::format("batch.slices={}", more), more, recipe.memory.recompute,
               "smaller products; other bits");
    }
  }
  // Several slices of a strand are added up in whole gradients before these are shared out.
  if (plan.layout.ranks.zero >= 2 && plan.layout.strands < slices) {
    program::Layout layout = plan.layout;
    layout.strands = slices;
    program::settle_nodes(layout.ranks, layout.strands);
    program::Program program = program::compile(*plan.model, layout);
    const int64_t peak = program::place(program).peak_bytes();
    if (peak < plan.memory.peak_bytes()) {
      found.push_back({fmt::format("batch.strands={}", slices), peak,
                       "gradients are shared out after every slice: more bytes between ranks; other bits"});
    }
  }
  const bool cheap = recipe.memory.recompute == "cheap";
  if (recipe.memory.recompute == "none" || cheap) {
    consider("memory.recompute=cheap", slices, "cheap", "norms and SwiGLU again, same bits");
    if (has_segment(*plan.model, "up"))
      consider("memory.recompute=up", slices, "up", "a little more computation, same bits");
    consider("memory.recompute=every-2", slices, "every-2", "about a third more computation, same bits");
    consider("memory.recompute=full", slices, "full", "about a third more computation, same bits");
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const Remedy& a, const Remedy& b) { return a.peak_bytes < b.peak_bytes; });
  return found;
}

void throw_out_of_memory(const Plan& plan, int64_t available) {
  const int64_t needed = plan.memory.peak_bytes();
  std::string text = fmt::format("out of memory on {}: the step needs {}, {} can be had.\n  what holds it:",
                                 plan.device->id().to_string(), human_bytes(static_cast<double>(needed)),
                                 human_bytes(static_cast<double>(available)));
  const std::vector<MemoryRow> rows = memory_rows(plan);
  for (size_t k = 0; k < rows.size() && k < 10; ++k) {
    text += fmt::format("\n    {:<34} {:>10}", rows[k].what, human_bytes(static_cast<double>(rows[k].bytes)));
  }
  if (rows.size() > 10) text += fmt::format("\n    ... and {} smaller", rows.size() - 10);
  const std::vector<Remedy> ways = remedies(plan);
  text += ways.empty() ? "\n  remedy: a smaller model, or a device with more memory"
                       : "\n  remedies, best first:";
  for (const Remedy& way : ways) {
    text += fmt::format("\n    {:<26} saves {:>10}, needs {:>10}: {}{}", way.change,
                        human_bytes(static_cast<double>(needed - way.peak_bytes)),
                        human_bytes(static_cast<double>(way.peak_bytes)),
                        way.peak_bytes <= available ? "fits; " : "still too much; ", way.price);
  }
  throw base::RunError(420, text + "\n ");
}

}  // namespace lockstep::run
