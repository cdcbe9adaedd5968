#include "lockstep/program/compile.h"

#include <fmt/format.h>

#include <map>

#include "lockstep/base/error.h"
#include "lockstep/model/layout.h"

namespace lockstep::program {

namespace {

using device::DType;
using device::Shape;
using model::Part;
using model::SegmentPlan;
using model::ValueSpec;

// Buffers that live across steps, by block.
struct Persistent {
  std::vector<int> master, compute;         // the same buffer when compute is fp32
  std::vector<std::vector<int>> gradients;  // [block][level]
  std::vector<std::vector<int>> moments;    // [block][moment]
  std::vector<int> chunks;                  // [block]
  std::map<std::string, int> tables;        // tables and statistics, shared by name
  int state = -1, inputs = -1, slice_losses = -1, square_sums = -1;
};

class Compiler {
 public:
  Compiler(const model::Model& model, const Layout& layout) : model_(model), layout_(layout) {
    program_.training = layout.training;
    program_.slices = layout.slices;
    program_.strands = layout.strands;
    program_.samples_per_slice = layout.slice.samples;
    program_.seq_len = layout.slice.seq_len;
    for (const model::Block& block : model.blocks) {
      layouts_.push_back(model::layout_of(block));
      plans_.emplace_back();
      for (const auto& segment : block.segments()) {
        plans_.back().push_back(segment->plan(layout.slice, *layout.kernels));
        program_.workspace_bytes = std::max(program_.workspace_bytes, plans_.back().back().workspace);
      }
    }
  }

  Program run() {
    add_persistent();
    const int64_t per_strand = layout_.slices / layout_.strands;
    for (int64_t strand = 0; strand < layout_.strands; ++strand) {
      open_strand();
      for (int64_t i = 0; i < per_strand; ++i) slice(static_cast<int>(strand * per_strand + i), i > 0);
      close_strand(strand);
    }
    if (layout_.training) finish_step();
    return std::move(program_);
  }

 private:
  // --- what lives across steps -------------------------------------------------------------------
  int persistent(std::string name, BufferKind kind, DType type, Shape shape, int block) {
    return program_.add_buffer({.name = std::move(name), .kind = kind, .dtype = type, .shape = shape, .block = block,
                                .persistent = true});
  }

  void add_persistent() {
    const int levels = layout_.training ? stack_depth(layout_.strands) : 0;
    int64_t chunk_count = 0;
    for (size_t b = 0; b < model_.blocks.size(); ++b) {
      const int block = static_cast<int>(b);
      const Shape values{layouts_[b].value_count}, grads{layouts_[b].grad_count};
      keep_.master.push_back(persistent(fmt::format("b{} weights", b), BufferKind::master, DType::f32, values, block));
      keep_.compute.push_back(model_.compute == DType::f32
                                  ? keep_.master.back()
                                  : persistent(fmt::format("b{} weights {}", b, device::name_of(model_.compute)),
                                               BufferKind::compute, model_.compute, values, block));
      keep_.gradients.emplace_back();
      for (int level = 0; level < levels; ++level) {
        keep_.gradients.back().push_back(
            persistent(fmt::format("b{} gradient {}", b, level), BufferKind::gradient, DType::f32, grads, block));
      }
      keep_.moments.emplace_back();
      for (int k = 0; layout_.training && k < layout_.moments; ++k) {
        keep_.moments.back().push_back(
            persistent(fmt::format("b{} moment {}", b, k + 1), BufferKind::optimizer, DType::f32, values, block));
      }
      const auto chunks = static_cast<int64_t>(model::chunks_of(layouts_[b], 0, false).size());
      chunk_count += chunks;
      keep_.chunks.push_back(persistent(fmt::format("b{} chunks", b), BufferKind::state, DType::u8,
                                        {chunks * static_cast<int64_t>(sizeof(kernels::Chunk))}, block));
    }
    keep_.inputs = persistent("step inputs", BufferKind::state, DType::u8, {sizeof(kernels::StepInputs)}, -1);
    keep_.state = persistent("step state", BufferKind::state, DType::u8, {sizeof(kernels::StepState)}, -1);
    keep_.slice_losses = persistent("slice losses", BufferKind::state, DType::f64, {layout_.slices}, -1);
    keep_.square_sums = persistent("square sums", BufferKind::state, DType::f64, {chunk_count}, -1);
    program_.add_buffer({.name = "workspace", .kind = BufferKind::workspace, .dtype = DType::u8,
                         .shape = {program_.workspace_bytes}, .persistent = true});
  }

  static int stack_depth(int64_t strands) {
    int depth = 1;
    while ((int64_t{1} << depth) <= strands) ++depth;
    return depth;
  }

  // --- one slice -----------------------------------------------------------------------------------
  int value(const ValueSpec& spec, BufferKind kind, int block, int slice) {
    return program_.add_buffer({.name = fmt::format("b{} s{} {}", block, slice, spec.name), .kind = kind, .dtype = spec.dtype,
                                .shape = spec.shape, .block = block, .slice = slice, .external = spec.external});
  }

  void slice(int s, bool accumulate) {
    Instruction load{.op = Op::load, .lane = Lane::host, .slice = s};
    std::map<std::string, int> batch;
    for (const auto& [field, words] : {std::pair("inputs", model_.input_words), std::pair("labels", model_.label_words)}) {
      batch[field] = program_.add_buffer({.name = fmt::format("s{} {}", s, field), .kind = BufferKind::batch,
                                          .dtype = DType::i32,
                                          .shape = {layout_.slice.samples, words > 0 ? words : layout_.slice.seq_len},
                                          .slice = s});
      load.writes.push_back({batch[field], field});
    }
    program_.instructions.push_back(std::move(load));

    std::map<std::string, int> edges, dedges;
    // What each segment's forward saw and made, by role: "in.hidden" to its buffer.
    std::vector<std::vector<std::map<std::string, int>>> seen(model_.blocks.size());
    for (size_t b = 0; b < model_.blocks.size(); ++b) {
      seen[b].resize(plans_[b].size());
      for (size_t g = 0; g < plans_[b].size(); ++g) forward(b, g, s, accumulate, batch, edges, dedges, seen[b][g]);
    }
    LS_ASSERT(edges.empty(), "an edge is left over: " + edges.begin()->first);
    if (!layout_.training) return;
    for (size_t b = model_.blocks.size(); b-- > 0;) {
      for (size_t g = plans_[b].size(); g-- > 0;) {
        if (!plans_[b][g].loss) backward(b, g, s, accumulate, batch, dedges, seen[b][g]);
      }
    }
    LS_ASSERT(dedges.empty(), "a gradient is left over: " + dedges.begin()->first);
  }

  void add_weights(Instruction& i, size_t b, size_t g) {
    for (const model::ParamSpec& spec : model_.blocks[b].segments()[g]->params()) {
      const int owner = spec.tied_to.empty() ? static_cast<int>(b) : model::find_tied(layouts_, spec.tied_to).block;
      i.reads.push_back({keep_.compute[static_cast<size_t>(owner)], "weight." + spec.key});
    }
    for (const model::BufferSpec& spec : model_.blocks[b].segments()[g]->buffers()) {
      auto [it, fresh] = keep_.tables.try_emplace(spec.name, -1);
      if (fresh) it->second = persistent(spec.name, BufferKind::state, spec.dtype, spec.shape, static_cast<int>(b));
      i.reads.push_back({it->second, "buffer." + spec.key});
    }
  }

  // Every slice starts from the statistics of the step's beginning and leaves its own until the step's end.
  void add_statistics(Instruction& i, size_t b, size_t g, int s) {
    for (const model::BufferSpec& spec : model_.blocks[b].segments()[g]->buffers()) {
      if (spec.constant) continue;
      const int kept = value({spec.key, spec.dtype, spec.shape}, BufferKind::saved, static_cast<int>(b), s);
      i.writes.push_back({kept, "stat." + spec.key});
      statistics_[{b, g}].push_back({kept, fmt::format("stat.{}.{}", spec.key, s)});
    }
  }

  void add_gradients(Instruction& i, size_t b, size_t g, bool accumulate) {
    i.level = level_;
    i.accumulate = accumulate;
    for (const model::ParamSpec& spec : model_.blocks[b].segments()[g]->params()) {
      i.writes.push_back({keep_.gradients[b][static_cast<size_t>(level_)], "grad." + spec.key});
    }
  }

  void add_scratch(Instruction& i, const SegmentPlan& plan, Part part, int block, int s) {
    for (const auto& [where, spec] : plan.scratch) {
      if (where == part) i.writes.push_back({value(spec, BufferKind::scratch, block, s), "scratch." + spec.name});
    }
  }

  void add_cost(Instruction& i, size_t b, size_t g, Part part) {
    const model::Cost cost = model_.blocks[b].segments()[g]->cost(layout_.slice, part);
    i.flops += cost.flops();
    i.moved_bytes += cost.bytes;
  }

  void forward(size_t b, size_t g, int s, bool accumulate, const std::map<std::string, int>& batch,
               std::map<std::string, int>& edges, std::map<std::string, int>& dedges, std::map<std::string, int>& seen) {
    const SegmentPlan& plan = plans_[b][g];
    const int block = static_cast<int>(b);
    Instruction i{.op = plan.loss ? Op::loss : Op::forward, .block = block, .segment = static_cast<int>(g), .slice = s};
    const auto read = [&](const std::string& role, int buffer) {
      i.reads.push_back({buffer, role});
      seen[role] = buffer;
    };
    const auto write = [&](const std::string& role, int buffer) {
      i.writes.push_back({buffer, role});
      seen[role] = buffer;
    };
    for (const std::string& field : plan.batch) read("batch." + field, batch.at(field));
    for (const auto* names : {&plan.takes, &plan.passes}) {
      for (const std::string& name : *names) {
        LS_ASSERT(edges.contains(name), fmt::format("b{} needs edge {}, which nothing before it gives", b, name));
        read("in." + name, edges.at(name));
      }
    }
    for (const std::string& name : plan.takes) edges.erase(name);
    for (const ValueSpec& spec : plan.gives) {
      LS_ASSERT(!edges.contains(spec.name), fmt::format("b{} gives {}, which is still there", b, spec.name));
      edges[spec.name] = value(spec, BufferKind::edge, block, s);
      write("out." + spec.name, edges[spec.name]);
    }
    for (const ValueSpec& spec : plan.saves) write("save." + spec.name, value(spec, BufferKind::saved, block, s));
    add_scratch(i, plan, Part::forward, block, s);
    add_weights(i, b, g);
    if (layout_.training) add_statistics(i, b, g, s);
    add_cost(i, b, g, Part::forward);
    if (plan.loss) {
      i.writes.push_back({keep_.slice_losses, "loss"});
      i.reads.push_back({keep_.inputs, "inputs"});
      i.reads.push_back({keep_.state, "state"});
    }
    if (plan.loss && layout_.training) {
      for (const std::string& name : plan.takes) {
        const Buffer& like = program_.buffers[static_cast<size_t>(seen.at("in." + name))];
        dedges[name] = value({"d" + name, like.dtype, like.shape}, BufferKind::dedge, block, s);
        i.writes.push_back({dedges[name], "din." + name});
      }
      add_gradients(i, b, g, accumulate);
      add_cost(i, b, g, Part::backward_input);
      add_cost(i, b, g, Part::backward_weight);
    }
    program_.instructions.push_back(std::move(i));
  }

  void backward(size_t b, size_t g, int s, bool accumulate, const std::map<std::string, int>& batch,
                std::map<std::string, int>& dedges, std::map<std::string, int>& seen) {
    const SegmentPlan& plan = plans_[b][g];
    const int block = static_cast<int>(b);
    const bool has_input = !plan.takes.empty() || !plan.passes.empty() || !plan.leaves.empty();
    for (const ValueSpec& spec : plan.gives) seen["dout." + spec.name] = take(dedges, spec.name);
    for (const std::string& name : plan.passes) seen["dout." + name] = take(dedges, name);

    if (has_input) {
      Instruction i{.op = Op::backward_input, .block = block, .segment = static_cast<int>(g), .slice = s};
      for (const std::string& need : plan.input_needs) i.reads.push_back({seen.at(need), need});
      std::map<std::string, std::string> same(plan.same.begin(), plan.same.end());
      std::vector<std::string> names = plan.takes;
      names.insert(names.end(), plan.passes.begin(), plan.passes.end());
      for (const std::string& name : names) {
        if (same.contains("din." + name)) continue;
        const Buffer like = program_.buffers[static_cast<size_t>(seen.at("in." + name))];
        seen["din." + name] = value({"d" + name, like.dtype, like.shape}, BufferKind::dedge, block, s);
      }
      for (const std::string& name : names) {
        const std::string role = "din." + name;
        if (same.contains(role)) seen[role] = seen.at(same.at(role));
        dedges[name] = seen.at(role);
        i.writes.push_back({seen.at(role), role});
      }
      for (const ValueSpec& spec : plan.leaves) {
        seen["left." + spec.name] = value(spec, BufferKind::dedge, block, s);
        i.writes.push_back({seen["left." + spec.name], "left." + spec.name});
      }
      for (const auto& [written, reused] : plan.may_reuse) {
        if (seen.contains(written) && seen.contains(reused)) i.may_reuse.push_back({seen.at(written), seen.at(reused)});
      }
      add_scratch(i, plan, Part::backward_input, block, s);
      add_weights(i, b, g);
      add_cost(i, b, g, Part::backward_input);
      program_.instructions.push_back(std::move(i));
    }
    if (plan.weight_needs.empty()) return;
    Instruction w{.op = Op::backward_weight, .block = block, .segment = static_cast<int>(g), .slice = s};
    for (const std::string& field : plan.batch) w.reads.push_back({batch.at(field), "batch." + field});
    for (const std::string& need : plan.weight_needs) w.reads.push_back({seen.at(need), need});
    add_scratch(w, plan, Part::backward_weight, block, s);
    add_gradients(w, b, g, accumulate);
    add_cost(w, b, g, Part::backward_weight);
    program_.instructions.push_back(std::move(w));
  }

  static int take(std::map<std::string, int>& dedges, const std::string& name) {
    LS_ASSERT(dedges.contains(name), "no gradient reaches edge " + name);
    const int buffer = dedges.at(name);
    dedges.erase(name);
    return buffer;
  }

  // --- strands: a binary counter of partial sums ---------------------------------------------------
  // Strand j is summed into the top of a stack. After it, equal neighbours merge, as in a binary counter;
  // at the end the rest merges from the right: that is the tree over [0, S) split at powers of two.
  void open_strand() { level_ = static_cast<int>(stack_.size()); }

  void close_strand(int64_t strand) {
    stack_.push_back(1);
    const bool last = strand + 1 == layout_.strands;
    while (stack_.size() > 1 && (last || stack_[stack_.size() - 1] == stack_[stack_.size() - 2])) {
      const size_t right = stack_.size() - 1;
      if (layout_.training) merge(static_cast<int>(right - 1), static_cast<int>(right));
      stack_[right - 1] += stack_[right];
      stack_.pop_back();
    }
  }

  void merge(int into, int from) {
    for (size_t b = 0; b < model_.blocks.size(); ++b) {
      const auto block = keep_.gradients[b];
      if (program_.buffers[static_cast<size_t>(block[0])].bytes() == 0) continue;
      Instruction i{.op = Op::sum, .block = static_cast<int>(b), .level = into, .accumulate = true};
      i.reads = {{block[static_cast<size_t>(from)], "from"}, {block[static_cast<size_t>(into)], "into"}};
      i.writes = {{block[static_cast<size_t>(into)], "into"}};
      i.moved_bytes = 3 * program_.buffers[static_cast<size_t>(block[0])].bytes();
      program_.instructions.push_back(std::move(i));
    }
  }

  // --- the end of the step -------------------------------------------------------------------------
  void finish_step() {
    for (size_t b = 0; b < model_.blocks.size(); ++b) {
      for (size_t k = 0; k < layouts_[b].params.size(); ++k) {
        const model::PlacedParam& param = layouts_[b].params[k];
        if (!param.spec.tied_to.empty()) add_tied(b, static_cast<int>(k), param);
      }
    }
    Instruction norm{.op = Op::norm};
    for (size_t b = 0; b < model_.blocks.size(); ++b) {
      norm.reads.push_back({keep_.gradients[b][0], fmt::format("gradient.{}", b)});
      norm.reads.push_back({keep_.chunks[b], fmt::format("chunks.{}", b)});
      norm.moved_bytes += layouts_[b].value_count * 4;
    }
    norm.reads.push_back({keep_.slice_losses, "losses"});
    norm.reads.push_back({keep_.inputs, "inputs"});
    norm.writes = {{keep_.square_sums, "sums"}, {keep_.state, "state"}};
    program_.instructions.push_back(std::move(norm));
    for (const auto& [where, kept] : statistics_) fold_statistics(where.first, where.second, kept);
    for (size_t b = 0; b < model_.blocks.size(); ++b) {
      if (layouts_[b].value_count == 0) continue;
      Instruction update{.op = Op::update, .block = static_cast<int>(b), .predicated = true};
      update.reads = {{keep_.gradients[b][0], "gradient"}, {keep_.chunks[b], "chunks"}, {keep_.inputs, "inputs"},
                      {keep_.state, "state"}};
      update.writes = {{keep_.master[b], "master"}};
      if (keep_.compute[b] != keep_.master[b]) update.writes.push_back({keep_.compute[b], "compute"});
      for (size_t k = 0; k < keep_.moments[b].size(); ++k) {
        update.writes.push_back({keep_.moments[b][k], fmt::format("moment.{}", k)});
      }
      update.moved_bytes = layouts_[b].value_count * (4 + 8 + 8 * static_cast<int64_t>(keep_.moments[b].size()) +
                                                      (model_.compute == DType::f32 ? 0 : 2));
      program_.instructions.push_back(std::move(update));
    }
  }

  // Behind the norm, because a step whose gradients are not finite leaves statistics as they were.
  void fold_statistics(size_t b, size_t g, const std::vector<Use>& kept) {
    Instruction i{.op = Op::sum, .block = static_cast<int>(b), .segment = static_cast<int>(g), .keeps_tape = false};
    i.reads = kept;
    for (const Use& use : kept) i.moved_bytes += program_.buffers[static_cast<size_t>(use.buffer)].bytes();
    for (const model::BufferSpec& spec : model_.blocks[b].segments()[g]->buffers()) {
      if (!spec.constant) i.writes.push_back({keep_.tables.at(spec.name), "buffer." + spec.key});
    }
    i.reads.push_back({keep_.state, "state"});
    program_.instructions.push_back(std::move(i));
  }

  // Two gradient slots, added once: the tied one onto the one of the parameter that holds the values.
  void add_tied(size_t b, int param_index, const model::PlacedParam& param) {
    const model::TiedTo owner = model::find_tied(layouts_, param.spec.tied_to);
    Instruction i{.op = Op::sum, .block = static_cast<int>(b), .segment = -1, .accumulate = true};
    const int into = keep_.gradients[static_cast<size_t>(owner.block)][0];
    i.level = param_index;
    i.reads = {{keep_.gradients[b][0], "tied"}, {into, "into"}};
    i.writes = {{into, "into"}};
    i.moved_bytes = 3 * param.spec.shape.numel() * 4;
    program_.instructions.push_back(std::move(i));
  }

  const model::Model& model_;
  const Layout& layout_;
  std::vector<model::BlockLayout> layouts_;
  std::vector<std::vector<SegmentPlan>> plans_;
  Program program_;
  Persistent keep_;
  std::map<std::pair<size_t, size_t>, std::vector<Use>> statistics_;  // {block, segment}: of every slice
  std::vector<int64_t> stack_;  // strands summed in each gradient level
  int level_ = 0;
};

}  // namespace

Program compile(const model::Model& model, const Layout& layout) {
  LS_ASSERT(layout.kernels != nullptr && layout.slices % layout.strands == 0);
  Program program = Compiler(model, layout).run();
  if (layout.training) rewrite_recompute(program, model, layout.recompute);
  rewrite_reuse(program);
  return program;
}

}  // namespace lockstep::program
