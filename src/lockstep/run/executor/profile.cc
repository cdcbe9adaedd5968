#include "lockstep/run/executor/profile.h"

#include <cxxabi.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>

#include "lockstep/terminal/table.h"

namespace lockstep::run {
namespace {

struct Span {
  int64_t begin = INT64_MAX, end = 0, busy = 0;  // nanoseconds; busy: the sum of what ran inside
};

// By tag, in the order of time.
std::map<int64_t, Span> spans_of(const Profile& profile) {
  std::map<int64_t, Span> spans;
  for (const device::Traced& one : profile.ran) {
    if (one.tag < 0) continue;
    Span& span = spans[one.tag];
    span.begin = std::min(span.begin, one.begin_ns);
    span.end = std::max(span.end, one.end_ns);
    span.busy += one.end_ns - one.begin_ns;
  }
  return spans;
}

const program::Instruction& instruction_of(const program::Program& program, int64_t tag) {
  return program.instructions[static_cast<size_t>(tag) % program.instructions.size()];
}

// A kernel's name without its arguments: "void f<int>(float*)" is "f<int>".
std::string kernel_name(const std::string& mangled) {
  int status = 0;
  char* text = abi::__cxa_demangle(mangled.c_str(), nullptr, nullptr, &status);
  std::string name = status == 0 && text != nullptr ? text : mangled;
  std::free(text);
  for (const std::string_view noise :
       {"void ", "lockstep::kernels::cuda::", "lockstep::kernels::", "(anonymous namespace)::"}) {
    for (size_t at = name.find(noise); at != std::string::npos; at = name.find(noise))
      name.erase(at, noise.size());
  }
  int depth = 0;
  for (size_t i = 0; i < name.size(); ++i) {
    depth += name[i] == '<' ? 1 : name[i] == '>' ? -1 : 0;
    if (name[i] == '(' && depth == 0) return name.substr(0, i);
  }
  return name;
}

// Events of one rank's trace.
struct Writer {
  int rank;
  int64_t zero_ns;
  nlohmann::ordered_json events = nlohmann::ordered_json::array();

  nlohmann::ordered_json& add(const std::string& name, int64_t begin, int64_t end, int row) {
    events.push_back({{"name", name},
                      {"ph", "X"},
                      {"ts", static_cast<double>(begin - zero_ns) / 1e3},
                      {"dur", static_cast<double>(end - begin) / 1e3},
                      {"pid", rank},
                      {"tid", row}});
    return events.back();
  }
  void name(const char* what, const std::string& name, int row) {
    events.push_back({{"name", what}, {"ph", "M"}, {"pid", rank}, {"tid", row}, {"args", {{"name", name}}}});
  }
};

std::string trace_text(nlohmann::ordered_json events) {
  return nlohmann::ordered_json{{"displayTimeUnit", "ms"}, {"traceEvents", std::move(events)}}.dump();
}

// Viewers order rows by number: the kernels of a lane stand right below it.
int row_of(program::Lane lane) { return 2 * static_cast<int>(lane) + 1; }
int kernel_row_of(program::Lane lane) { return row_of(lane) + 1; }

// "backward_input up": the same instruction of every layer and slice.
std::string kind_of(const program::Instruction& i, const model::Model& model) {
  std::string kind = program::name_of(program::verb_of(i.what));
  if (i.block >= 0 && i.segment >= 0) {
    kind +=
        " " + model.blocks[static_cast<size_t>(i.block)].segments()[static_cast<size_t>(i.segment)]->name();
  }
  return kind;
}

}  // namespace

void name_graphs(Profile& profile, int64_t instructions) {
  std::stable_sort(profile.ran.begin(), profile.ran.end(),
                   [](const device::Traced& a, const device::Traced& b) { return a.begin_ns < b.begin_ns; });
  std::map<std::string, std::vector<int64_t>> first_step;  // the tags of each name
  std::map<std::string, size_t> met;
  profile.by_call = 0;
  for (const device::Traced& one : profile.ran) {
    if (one.in_graph || one.tag < 0) continue;
    profile.by_call = std::max(profile.by_call, one.tag / instructions + 1);
    if (one.tag < instructions) first_step[one.name].push_back(one.tag);
  }
  for (device::Traced& one : profile.ran) {
    const auto tags = one.in_graph ? first_step.find(one.name) : first_step.end();
    if (tags == first_step.end()) continue;
    const size_t n = met[one.name]++, each = tags->second.size();
    one.tag = (profile.by_call + static_cast<int64_t>(n / each)) * instructions + tags->second[n % each];
  }
}

int64_t began_ns(const Profile& profile) {
  int64_t first = INT64_MAX;
  for (const device::Traced& one : profile.ran) first = std::min(first, one.begin_ns);
  return profile.ran.empty() ? 0 : first;
}

std::string trace_json(const Profile& profile, const program::Program& program, const model::Model& model,
                       int rank, int64_t zero_ns) {
  Writer writer{rank, zero_ns};
  std::map<int, std::string> rows;
  for (const auto& [tag, span] : spans_of(profile)) {
    const program::Instruction& i = instruction_of(program, tag);
    rows[row_of(i.lane)] = fmt::format("lane {}", program::name_of(i.lane));
    auto& event = writer.add(program::title(program, model, i), span.begin, span.end, row_of(i.lane));
    event["args"]["step"] = profile.first_step + tag / static_cast<int64_t>(program.instructions.size());
  }
  for (const device::Traced& one : profile.ran) {
    if (one.name.empty()) continue;
    const program::Lane lane = one.tag < 0 ? program::Lane::compute : instruction_of(program, one.tag).lane;
    rows[kernel_row_of(lane)] = fmt::format("kernels of lane {}", program::name_of(lane));
    writer.add(kernel_name(one.name), one.begin_ns, one.end_ns, kernel_row_of(lane));
  }
  for (const auto& [row, name] : rows) writer.name("thread_name", name, row);
  writer.name("process_name", fmt::format("rank {}", rank), 0);
  return trace_text(std::move(writer.events));
}

std::string join_traces(const std::vector<std::string>& traces) {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const std::string& text : traces) {
    nlohmann::ordered_json trace = nlohmann::ordered_json::parse(text, nullptr, false);
    if (!trace.is_object() || !trace.contains("traceEvents") || !trace["traceEvents"].is_array()) continue;
    for (auto& event : trace["traceEvents"]) all.push_back(std::move(event));
  }
  return trace_text(std::move(all));
}

std::string profile_table(const Profile& profile, const program::Program& program, const model::Model& model,
                          const Ceilings& ceilings, size_t width) {
  struct Row {
    int64_t times = 0;
    double ms = 0, ceiling_ms = 0;
  };
  std::map<std::string, Row> rows;
  const std::map<int64_t, Span> spans = spans_of(profile);
  int64_t first = INT64_MAX, last = 0;
  double busy = 0;
  // Where steps ran as graphs, those are what training is made of; the first only gave the names.
  const int64_t of_graphs = profile.by_call * static_cast<int64_t>(program.instructions.size());
  const bool graphs = spans.lower_bound(of_graphs) != spans.end() && profile.by_call > 0;
  const int64_t first_tag = graphs ? of_graphs : 0;
  for (const auto& [tag, span] : spans) {
    if (tag < first_tag) continue;
    const program::Instruction& i = instruction_of(program, tag);
    Row& row = rows[kind_of(i, model)];
    ++row.times;
    row.ms += static_cast<double>(span.busy) / 1e6;
    // A call among ranks lasts until the slowest has come: no ceiling of this device says anything about it.
    if (i.among == program::Among::none) row.ceiling_ms += ceilings.milliseconds(i);
    first = std::min(first, span.begin);
    last = std::max(last, span.end);
    // What runs beside the compute lane keeps nothing busy that anyone waits for.
    if (i.lane == program::Lane::compute) busy += static_cast<double>(span.busy) / 1e6;
  }
  const int64_t counted = profile.steps - (graphs ? profile.by_call : 0);
  const auto steps = static_cast<double>(std::max<int64_t>(1, counted));
  const double whole = spans.empty() ? 0 : static_cast<double>(last - first) / 1e6 / steps;
  std::vector<std::pair<std::string, Row>> sorted(rows.begin(), rows.end());
  std::sort(sorted.begin(), sorted.end(),
            [](const auto& a, const auto& b) { return a.second.ms > b.second.ms; });
  terminal::Table table({"instruction", "times", "ms per step", "share", "ceiling ms", "times the ceiling"});
  for (const size_t column : {1, 2, 3, 4, 5}) table.align_right(column);
  for (const auto& [kind, row] : sorted) {
    const double ms = row.ms / steps, ceiling = row.ceiling_ms / steps;
    table.add({kind, fmt::format("{:g}", static_cast<double>(row.times) / steps), fmt::format("{:.3f}", ms),
               fmt::format("{:.1f} %", 100 * ms / std::max(whole, 1e-9)),
               ceiling > 0 ? fmt::format("{:.3f}", ceiling) : "-",
               ceiling > 0 ? fmt::format("{:.2f}", ms / ceiling) : "-"});
  }
  table.add({"(nothing computes)", "", fmt::format("{:.3f}", std::max(0.0, whole - busy / steps)),
             fmt::format("{:.1f} %", 100 * std::max(0.0, 1 - busy / steps / std::max(whole, 1e-9))), "", ""});
  return fmt::format("{} step{}{}, {:.3f} ms each\n{}", counted, counted == 1 ? "" : "s",
                     graphs ? " as a graph" : "", whole, table.to_text(width));
}

}  // namespace lockstep::run
