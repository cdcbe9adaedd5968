// The pure parsers; what asks the kernel is in facts_read.cc.
#include "lockstep/device/facts.h"

#include <sys/utsname.h>

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "lockstep/base/number.h"
#include "lockstep/base/text.h"

namespace lockstep::device {
namespace {

using base::split_lines;
using base::trimmed;

int64_t leading_number(std::string_view text) { return base::leading_number(trimmed(text)).value_or(0); }

// "name : value" cut in two at the first colon.
std::pair<std::string_view, std::string_view> cut_at_colon(std::string_view line) {
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos) return {trimmed(line), ""};
  return {trimmed(line.substr(0, colon)), trimmed(line.substr(colon + 1))};
}

std::string architecture_of(const std::set<std::string>& flags) {
  const auto all = [&](std::initializer_list<const char*> names) {
    return std::all_of(names.begin(), names.end(), [&](const char* name) { return flags.count(name) > 0; });
  };
  if (!all({"avx2", "bmi1", "bmi2", "f16c", "fma", "movbe"})) return "x86-64";
  return all({"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}) ? "x86-64-v4" : "x86-64-v3";
}

std::set<std::string> words_of(std::string_view text) {
  std::set<std::string> words;
  while (!(text = trimmed(text)).empty()) {
    const size_t end = std::min(text.find_first_of(" \t"), text.size());
    words.emplace(text.substr(0, end));
    text.remove_prefix(end);
  }
  return words;
}

}  // namespace

CpuFacts parse_cpuinfo(std::string_view text) {
  CpuFacts facts;
  std::set<std::pair<int64_t, int64_t>> cores;
  std::set<int64_t> sockets;
  int64_t socket = 0;
  for (const std::string& line : split_lines(text)) {
    const auto [name, value] = cut_at_colon(line);
    if (name == "processor") ++facts.threads, socket = 0;
    if (name == "model name" && facts.model.empty()) facts.model = value;
    if (name == "physical id") sockets.insert(socket = leading_number(value));
    if (name == "core id") cores.emplace(socket, leading_number(value));
    if (name == "flags" && facts.architecture.empty()) facts.architecture = architecture_of(words_of(value));
  }
  if (facts.architecture.empty()) {  // not x86: the file has no "flags"
    utsname name{};
    if (::uname(&name) == 0) facts.architecture = name.machine;
  }
  // Virtual machines and ARM often leave the topology out: then every thread counts as a core.
  facts.cores = cores.empty() ? facts.threads : static_cast<int>(cores.size());
  facts.sockets = sockets.empty() ? 1 : static_cast<int>(sockets.size());
  return facts;
}

MemoryFacts parse_meminfo(std::string_view text) {
  MemoryFacts facts;
  for (const std::string& line : split_lines(text)) {
    const auto [name, value] = cut_at_colon(line);
    const int64_t number = leading_number(value);
    if (name == "MemTotal") facts.total = number * 1024;
    if (name == "MemAvailable") facts.available = number * 1024;
  }
  return facts;
}

FileLimit parse_open_files(std::string_view text) {
  constexpr std::string_view kName = "Max open files";
  for (const std::string& line : split_lines(text)) {
    if (!line.starts_with(kName)) continue;
    std::string_view rest = trimmed(std::string_view(line).substr(kName.size()));
    const std::string_view soft = rest.substr(0, rest.find(' '));
    const std::string_view hard = trimmed(rest.substr(soft.size()));
    const auto limit = [](std::string_view word) {
      return word.starts_with("unlimited") ? -1 : leading_number(word);
    };
    return {limit(soft), limit(hard)};
  }
  return {};
}

std::string parse_nvidia_driver(std::string_view text) {
  // "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  Sun Jul 27 ...": the first word a.b or a.b.c.
  const size_t start = text.find("NVRM version:");
  if (start == std::string_view::npos) return "";
  text = text.substr(start, text.find('\n', start) - start);
  while (!(text = trimmed(text)).empty()) {
    const std::string_view word = text.substr(0, text.find(' '));
    const bool version = word.find('.') != std::string_view::npos &&
                         word.find_first_not_of("0123456789.") == std::string_view::npos;
    if (version) return std::string(word);
    text.remove_prefix(word.size());
  }
  return "";
}

std::string parse_selected(std::string_view text) {
  const size_t open = text.find('['), close = text.find(']');
  if (open == std::string_view::npos || close == std::string_view::npos || close < open) return "";
  return std::string(text.substr(open + 1, close - open - 1));
}

std::string parse_python_string(std::string_view text, std::string_view name) {
  for (const std::string& line : split_lines(text)) {
    if (!line.starts_with(name)) continue;
    const std::string_view after = trimmed(std::string_view(line).substr(name.size()));
    if (!after.starts_with('=') && !after.starts_with(':')) continue;
    const size_t open = after.find_first_of("'\"");
    if (open == std::string_view::npos) return "";
    const size_t close = after.find(after[open], open + 1);
    if (close == std::string_view::npos) return "";
    return std::string(after.substr(open + 1, close - open - 1));
  }
  return "";
}

std::string parse_mapped_library(std::string_view maps, std::string_view name) {
  const std::string ending = "/" + std::string(name);
  for (const std::string& line : split_lines(maps)) {
    const size_t path = line.find('/');
    if (path != std::string::npos && line.ends_with(ending)) return line.substr(path);
  }
  return "";
}

}  // namespace lockstep::device
