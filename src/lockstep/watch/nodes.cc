#include "lockstep/watch/nodes.h"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "lockstep/base/file.h"

namespace lockstep::watch {

namespace {

using nlohmann::json;
namespace fs = std::filesystem;
constexpr int64_t kMostBytes = 64 << 20;

std::string question(const std::string& folder) { return folder + "/trace/nodes.asked"; }
std::string answer(const std::string& folder) { return folder + "/trace/nodes.json"; }

std::optional<fs::file_time_type> time_of(const std::string& path) {
  std::error_code error;
  const fs::file_time_type time = fs::last_write_time(path, error);
  return error ? std::nullopt : std::optional(time);
}

}  // namespace

bool ask_nodes(const std::string& folder) {
  std::ofstream file(question(folder), std::ios::trunc);
  return static_cast<bool>(file << "asked\n" << std::flush);
}

bool NodesAsked::by_now(const std::string& folder) {
  const std::optional<fs::file_time_type> now = time_of(question(folder));
  // One that was there before this launcher looked is nobody's who looks now, or who will ask again.
  if (now && last_ && *now != *last_) since_ = std::chrono::steady_clock::now();
  last_ = now.value_or(fs::file_time_type::min());
  return since_ != std::chrono::steady_clock::time_point{} &&
         std::chrono::steady_clock::now() - since_ < kNodesStayFresh;
}

std::string nodes_text(const std::vector<RankFacts>& facts) {
  json ranks = json::array();
  for (const RankFacts& one : facts) ranks.push_back(to_json(one));
  return json{{"ranks", ranks}}.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
}

void write_nodes(const std::string& folder, const std::string& text) {
  const std::string path = answer(folder), fresh = path + ".new";
  {
    std::ofstream file(fresh, std::ios::trunc);
    if (!(file << text << std::flush)) return;
  }
  std::rename(fresh.c_str(), path.c_str());
}

std::vector<RankFacts> read_nodes(const std::string& folder) {
  const std::optional<fs::file_time_type> asked = time_of(question(folder)), told = time_of(answer(folder));
  if (!asked || !told || *asked - *told > kNodesStayFresh) return {};
  std::vector<RankFacts> facts;
  try {
    const json all = json::parse(base::try_read_file(answer(folder), kMostBytes).text);
    for (const json& one : all.at("ranks")) facts.push_back(facts_from_json(one));
  } catch (const json::exception&) {
    return {};  // another version's
  }
  std::sort(facts.begin(), facts.end(),
            [](const RankFacts& a, const RankFacts& b) { return a.rank < b.rank; });
  return facts;
}

}  // namespace lockstep::watch
