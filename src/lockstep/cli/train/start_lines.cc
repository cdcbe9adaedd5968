#include "lockstep/cli/train/start_lines.h"

#include <fmt/format.h>

#include "lockstep/base/text.h"
#include "lockstep/cli/explain/explain_plan.h"
#include "lockstep/device/thread_pool.h"
#include "lockstep/program/nodes.h"
#include "lockstep/terminal/table.h"

namespace lockstep::cli {

using base::human_bytes;
using base::human_count;

namespace {

// "8 over shm inside a node and gloo between nodes": what carries the bytes.
std::string engines_text(const run::Session& session) {
  using program::Among;
  using program::Lane;
  const program::DataRanks& r = session.plan.layout.ranks;
  const auto engine = [&](Among among, Lane lane) {
    return std::string(session.ranks->group(among, lane).engine());
  };
  std::string inside = engine(Among::all, Lane::reduce), between = inside;
  const char *where = "", *other = "";
  if (r.node_first || r.split() == Among::shard) {
    const Lane lane = r.node_first ? Lane::reduce : Lane::gather;
    inside = engine(Among::intra_node, lane), between = engine(Among::inter_node, lane);
    where = "a node", other = "nodes";
  } else if (r.sharded() && r.replicas > 1) {
    inside = engine(Among::shard, Lane::reduce), between = engine(Among::replica, Lane::reduce);
    where = "a copy", other = "them";
  }
  const int ranks = session.ranks->size();
  if (inside == between) return fmt::format("{} over {}", ranks, inside);
  return fmt::format("{} over {} inside {} and {} between {}", ranks, inside, where, between, other);
}

// "4 over shm, zero 3 in 2 copies of 2": how the ranks share the work, and what that costs.
std::string connected_line(const run::Session& session) {
  const program::DataRanks& r = session.plan.layout.ranks;
  const model::Parts& parts = session.plan.model->parts;
  const program::StrandAssignment assignment = r.assignment(session.plan.layout.strands);
  std::string text = engines_text(session);
  const auto add = [&](const char* what, int size) {
    if (size > 1) text += fmt::format(", {} {}", what, size);
  };
  if (r.width() < session.ranks->size()) add("data", r.width());
  add("context", parts.context);
  add(parts.sequence ? "tensor (and sequence)" : "tensor", parts.tensor);
  add("pipeline", session.plan.layout.stages.count);
  if (r.sharded()) {
    text += fmt::format(", parallel.zero={}", r.zero);
    if (r.replicas > 1) text += fmt::format(", {} replicas of {} ranks each", r.replicas, r.shard);
  }
  size_t buffers = 0;
  for (const program::BlockBuffers& block : session.plan.program.blocks)
    buffers = std::max(buffers, block.gradients.size());
  text += fmt::format("; {} gradient buffer{} per rank", buffers, buffers == 1 ? "" : "s");
  if (!r.exact) return text + ", reduced in the engine's order: not exact";
  bool even = true;
  for (int p = 0; p < r.replicas; ++p)
    even = even && nodes_of(assignment.strands, assignment.of_replica(p)).size() == 1;
  for (int q = 0; q < r.shard && !r.round_robin(); ++q)
    even = even && program::own_nodes(assignment, r.replica, q).size() == 1;
  if (!even)
    text += fmt::format("; {} strands do not divide evenly, so ranks send several partial sums",
                        assignment.strands);
  program::DataRanks tried = r;
  const std::string why = program::resolve_nodes(tried, assignment.strands);
  if (r.node_first) text += "; reduced inside each node, then between nodes";
  if (!why.empty()) text += fmt::format("; all ranks reduce in one group, because {}", why);
  const bool uneven = session.plan.seat.nodes > 1 && r.width() > 1 && r.per_node == 0;
  if (uneven) text += "; all ranks reduce in one group, because nodes have different numbers of data ranks";
  return text;
}

// "every 10 minutes and at the end".
std::string when_saved(const recipe::Recipe& r) {
  if (r.checkpoint.every > 0) return fmt::format("every {} steps and at the end", r.checkpoint.every);
  if (r.checkpoint.minutes > 0) return fmt::format("every {} minutes and at the end", r.checkpoint.minutes);
  return "only at the end";
}

// Fine-tuning is counted in epochs.
std::string epochs_line(const run::Plan& plan) {
  const recipe::Recipe& r = plan.recipe();
  const auto samples = static_cast<double>(plan.dataset->samples(data::Split::train));
  if (samples < 1) return "";
  return fmt::format(
      "epochs  {:.2f}: run.steps = {} of batch.global = {} samples; one epoch is {:.1f} steps\n",
      static_cast<double>(r.run.steps) * static_cast<double>(r.batch.global) / samples, r.run.steps,
      r.batch.global, samples / static_cast<double>(r.batch.global));
}

}  // namespace

std::string ranks_line(const run::Session& session) {
  return session.ranks->alone() ? "" : connected_line(session);
}

std::string sources_text(const std::vector<data::SourceCount>& sources) {
  if (sources.empty()) return "";
  terminal::Table table({"source", "share", "samples", "seen", "epochs"});
  for (size_t column = 1; column < 5; ++column) table.align_right(column);
  for (const data::SourceCount& source : sources) {
    table.add({source.name, fmt::format("{:.4g} %", 100 * source.share), std::to_string(source.samples),
               std::to_string(source.seen), fmt::format("{:.2f}", source.epochs())});
  }
  std::string text;
  for (const std::string& line : base::split_lines(table.to_text(std::string::npos)))
    text += fmt::format("        {}\n", line);
  return text;
}

std::string start_lines(const run::Plan& plan, const std::string& ranks, const std::string& folder) {
  const recipe::Recipe& r = plan.recipe();
  const device::Properties device = plan.device->properties();
  const int64_t slices = r.batch.slices.value, strands = r.batch.strands.value;
  std::string text;
  const int64_t parameters = plan.model->param_count(), trained = plan.model->trained_count();
  text += fmt::format(
      "model   {}{}: {} parameters, {}{} blocks, {}\n", plan.model->family,
      r.model.preset.empty() ? "" : " " + r.model.preset, human_count(static_cast<double>(parameters)),
      trained == parameters ? ""
                            : fmt::format("{} of them trained, ", human_count(static_cast<double>(trained))),
      plan.model->blocks.size(), device::name_of(plan.model->compute));
  text += fmt::format("data    {}\n", plan.dataset->describe());
  text += sources_text(plan.dataset->sources(r.run.steps * r.batch.global));
  for (const std::string& line : plan.dataset->remarks()) text += fmt::format("        {}\n", line);
  if (r.data.kind == "chat" || r.data.pack) text += epochs_line(plan);
  text += fmt::format(
      "device  {} ({}){}\n", plan.device->id().to_string(), device.name,
      plan.device->id().kind == device::Kind::cpu
          ? fmt::format(", {} thread{}", device::thread_count(), device::thread_count() == 1 ? "" : "s")
          : "");
  text += fmt::format(
      "batch   {} samples = {} slice{} in {} strand{}: {}\n", r.batch.global, slices, slices == 1 ? "" : "s",
      strands, strands == 1 ? "" : "s",
      strands == 1 ? "for one data rank" : fmt::format("same bits on 1 to {} data ranks", strands));
  if (const int64_t products = r.batch.product_strands; products > 1)
    text += fmt::format("        products in {} strands: same bits on 1 to {} tensor ranks\n", products,
                        products);
  if (const int64_t pieces = r.batch.sequence_strands; pieces > 1)
    text +=
        fmt::format("        sequences in {} strands: same bits on 1 to {} context ranks\n", pieces, pieces);
  if (!ranks.empty()) {
    text += "ranks   " + ranks + "\n";
    text += fmt::format("links   rank {} {}\n", plan.seat.rank, traffic_text(plan));
  }
  const double host = static_cast<double>(plan.memory.host_bytes);
  text += fmt::format("memory  {} ({} persistent, {} per step) of {}{}\n",
                      human_bytes(static_cast<double>(plan.memory.peak_bytes())),
                      human_bytes(static_cast<double>(plan.memory.persistent_bytes)),
                      human_bytes(static_cast<double>(plan.memory.transient_bytes)),
                      human_bytes(static_cast<double>(plan.available_bytes)),
                      host > 0 ? ", moments in " + human_bytes(host) + " of host memory" : "");
  return text + fmt::format("folder  {}, saved {}", folder, when_saved(r));
}

}  // namespace lockstep::cli
