#include "lockstep/run/session/memory_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "lockstep/base/error.h"
#include "lockstep/base/money.h"
#include "lockstep/base/text.h"
#include "lockstep/run/session/fitting.h"
#include "lockstep/run/session/forecast.h"
#include "lockstep/run/session/remedy_menu.h"
#include "lockstep/run/session/run_price.h"

namespace lockstep::run {

using base::human_bytes;

// Gradients of a block that the update reads, or that are added to them.
static bool is_sum(const Plan& plan, const program::Buffer& buffer) {
  const std::vector<int>& sums = plan.program.blocks[static_cast<size_t>(buffer.block)].gradients;
  const auto index = static_cast<int>(&buffer - plan.program.buffers.data());
  return std::find(sums.begin(), sums.end(), index) != sums.end();
}

// What a buffer that lives inside a step is to a user, and whose it is.
struct Holder {
  std::string use;
  int block = -1;  // not of one block
  auto operator<=>(const Holder&) const = default;
};

static Holder holder_of(const Plan& plan, const program::Buffer& buffer) {
  const bool staging = buffer.kind == program::BufferKind::scratch && buffer.block < 0;
  if (staging) return {"received from other ranks"};
  switch (buffer.kind) {
    case program::BufferKind::compute:
      return {"gathered weights", buffer.block};
    case program::BufferKind::quantized:
      return {"dequantized weights", buffer.block};
    case program::BufferKind::gradient:
      return is_sum(plan, buffer) ? Holder{"gradients"} : Holder{"gradients to reduce", buffer.block};
    case program::BufferKind::workspace:
      return {"workspace"};
    default:
      return buffer.block < 0 ? Holder{"activations: batch"} : Holder{"activations", buffer.block};
  }
}

static const std::string& block_name(const Plan& plan, int block) {
  return plan.model->blocks[static_cast<size_t>(block)].name();
}

static void largest_first(std::vector<MemoryRow>& rows) {
  std::stable_sort(rows.begin(), rows.end(),
                   [](const MemoryRow& a, const MemoryRow& b) { return a.bytes > b.bytes; });
}

// In the order of blocks.
static std::vector<MemoryRow> rows_at_peak(const Plan& plan) {
  std::vector<MemoryRow> rows;
  for (const auto& [kind, bytes] : plan.memory.persistent_by_kind)
    rows.push_back({program::name_of(kind), bytes});
  std::map<Holder, int64_t> held;
  const std::vector<program::Lifetime> lives = program::lifetimes(plan.program);
  for (size_t b = 0; b < plan.program.buffers.size(); ++b) {
    const program::Buffer& buffer = plan.program.buffers[b];
    const bool alive =
        lives[b].first <= plan.memory.peak_instruction && plan.memory.peak_instruction <= lives[b].last;
    if (!buffer.persistent && alive && lives[b].first >= 0) held[holder_of(plan, buffer)] += buffer.bytes();
  }
  for (const auto& [holder, bytes] : held) {
    const bool of_block = holder.block >= 0;
    rows.push_back({of_block ? holder.use + ": " + block_name(plan, holder.block) : holder.use, bytes,
                    of_block ? holder.use : "", holder.block});
  }
  return rows;
}

std::vector<MemoryRow> memory_rows(const Plan& plan) {
  std::vector<MemoryRow> rows = rows_at_peak(plan);
  largest_first(rows);
  return rows;
}

std::vector<MemoryRow> folded_memory_rows(const Plan& plan) {
  std::vector<MemoryRow> folded;
  const std::vector<MemoryRow> rows = rows_at_peak(plan);
  for (size_t first = 0; first < rows.size();) {
    size_t end = first + 1;
    const auto continues = [&](const MemoryRow& before, const MemoryRow& row) {
      return row.block >= 0 && row.use == before.use && row.block == before.block + 1 &&
             row.bytes == before.bytes;
    };
    while (end < rows.size() && continues(rows[end - 1], rows[end])) ++end;
    const auto count = static_cast<int64_t>(end - first);
    MemoryRow row = rows[first];
    if (count > 1) {
      row.what =
          fmt::format("{}: {} to {}, {} each", row.use, block_name(plan, row.block),
                      block_name(plan, rows[end - 1].block), human_bytes(static_cast<double>(row.bytes)));
      row.bytes *= count;
    }
    folded.push_back(std::move(row));
    first = end;
  }
  largest_first(folded);
  return folded;
}

std::vector<Remedy> remedies(const Plan& plan) {
  std::vector<Remedy> found;
  const Variant now = variant_of(plan);
  const auto consider = [&](const Variant& variant) {
    if (change_words(plan, variant).empty()) return;
    try {
      check_variant(plan, variant);
    } catch (const base::ConfigError&) {  // the ranks do not allow it
      return;
    }
    program::Program program = program::compile(*plan.model, layout_of(plan, variant));
    const int64_t peak = program::place(program).peak_bytes();
    if (peak >= plan.memory.peak_bytes()) return;
    found.push_back({change_words(plan, variant), peak, change_price(plan, variant)});
  };
  const auto changed = [&](auto change) {
    Variant variant = now;
    change(variant);
    consider(variant);
  };
  for (const int64_t factor : {2, 4, 8}) {
    if (plan.recipe().batch.global % (now.slices * factor) == 0)
      changed([&](Variant& v) { v.slices *= factor; });
  }
  // Several slices of a strand are added up in whole gradients before these are shared out.
  if (plan.layout.ranks.zero >= 2) changed([&](Variant& v) { v.strands = v.slices; });
  if (now.recompute == "none" || now.recompute == "cheap") {
    std::vector<std::string> more{"cheap", "every-2", "full"};
    if (has_segment(*plan.model, "up")) more.push_back("up");
    for (const std::string& recompute : more) changed([&](Variant& v) { v.recompute = recompute; });
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const Remedy& a, const Remedy& b) { return a.peak_bytes < b.peak_bytes; });
  return found;
}

// For a person who has to give up something else.
static std::string nothing_fits(const Plan& plan) {
  const Least least = least_memory(plan, kAllFreedom);
  const std::string change = change_words(plan, least.fitting.variant);
  std::string text = fmt::format(
      "\n  nothing fits: of {} combinations of slices, strands, recomputation and "
      "moments, ",
      least.combinations);
  text += change.empty()
              ? "none needs less"
              : fmt::format("the smallest needs {} with {}",
                            human_bytes(static_cast<double>(least.fitting.memory.peak_bytes())), change);
  return text +
         "\n  try a smaller model, a shorter data.seq_len, more ranks with parallel.zero=3, or a device with "
         "more memory";
}

// "2. batch.slices=64: 3.2 GiB, about 812 ms per step, $41; smaller products; other bits".
static std::string menu_line(const Plan& plan, const MenuRow& row, size_t number) {
  std::string text = fmt::format("\n    {}. {}\n       needs {}", number, row.change,
                                 human_bytes(static_cast<double>(row.peak_bytes)));
  if (row.step_seconds > 0)
    text += fmt::format(", about {} per step", base::human_duration(row.step_seconds));
  const double usd_per_hour = known_price(plan.recipe(), plan.seat.nodes);
  if (row.step_seconds > 0 && usd_per_hour > 0)
    text += fmt::format(", {} to the end", base::dollars(usd_per_hour / 3600 * row.step_seconds *
                                                         static_cast<double>(plan.recipe().run.steps)));
  return text + ": " + row.price;
}

void throw_out_of_memory(const Plan& plan, int64_t available) {
  const int64_t needed = plan.memory.peak_bytes();
  std::string text =
      fmt::format("out of memory on {}: the step needs {}, but {} is available.\n  what takes up memory:",
                  plan.device->id().to_string(), human_bytes(static_cast<double>(needed)),
                  human_bytes(static_cast<double>(available)));
  const std::vector<MemoryRow> rows = folded_memory_rows(plan);
  for (size_t k = 0; k < rows.size() && k < 10; ++k) {
    text += fmt::format("\n    {:<46} {:>10}", rows[k].what, human_bytes(static_cast<double>(rows[k].bytes)));
  }
  if (rows.size() > 10) text += fmt::format("\n    ... and {} smaller", rows.size() - 10);
  const std::vector<MenuRow> menu = remedy_menu(plan, available, this_place(plan).machine);
  text += menu.empty() ? nothing_fits(plan) : "\n  changes that fit, cheapest first:";
  for (size_t k = 0; k < menu.size(); ++k) text += menu_line(plan, menu[k], k + 1);
  if (!menu.empty())
    text += "\n  `lockstep explain memory RECIPE --apply N` writes one of them into the recipe";
  throw base::RunError(420, text + "\n ");
}

}  // namespace lockstep::run
