#include "lockstep/checkpoint/remote_owner.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <random>

#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/hash.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/usable.h"

namespace lockstep::checkpoint {
namespace {

using nlohmann::json;

constexpr const char* kOwnFile = "store.json";  // of the run folder

std::string drawn_number() {
  std::random_device source;
  return base::hex64(uint64_t{source()} << 32 | source());
}

std::string own_number(const std::string& run_folder, const std::string& to) {
  const json said = json::parse(base::try_read_file(run_folder + "/" + kOwnFile).text, nullptr, false);
  if (!said.is_object() || !said.contains(to) || !said[to].is_string()) return "";
  return said[to].get<std::string>();
}

void keep_number(const std::string& run_folder, const std::string& to, const std::string& number) {
  json said = json::parse(base::try_read_file(run_folder + "/" + kOwnFile).text, nullptr, false);
  if (!said.is_object()) said = json::object();
  said[to] = number;
  base::write_file_durable(run_folder + "/" + kOwnFile, said.dump(2) + "\n");
}

}  // namespace

std::string owner_json(const RemoteOwner& owner) {
  return json{{"run", owner.run},
              {"name", owner.name},
              {"host", owner.host},
              {"since", owner.since},
              {"holder", owner.holder}}
             .dump(2, ' ', false, json::error_handler_t::replace) +
         "\n";
}

std::optional<RemoteOwner> parse_owner(const std::string& text) {
  const json said = json::parse(text, nullptr, false);
  if (!said.is_object()) return std::nullopt;
  RemoteOwner owner;
  const std::pair<const char*, std::string*> parts[] = {{"run", &owner.run},
                                                        {"name", &owner.name},
                                                        {"host", &owner.host},
                                                        {"since", &owner.since},
                                                        {"holder", &owner.holder}};
  for (const auto& [key, value] : parts) {
    if (!said.contains(key) || !said[key].is_string()) return std::nullopt;
    *value = said[key].get<std::string>();
  }
  return owner;
}

RemoteOwner claim(const std::optional<RemoteOwner>& there, const std::string& run_folder,
                  const std::string& name, const std::string& to) {
  std::string mine = own_number(run_folder, to);
  if (there && there->run != mine) {
    const bool new_machine =
        mine.empty() && !has_saved(run_folder) && list(run_folder).empty() && there->name == name;
    if (!new_machine) {
      throw base::ConfigError(
          351, fmt::format(
                   "{} belongs to another run, \"{}\", last started on {} at {}: give this one a folder of "
                   "its own with checkpoint.to, or resume that one under its name in an empty run "
                   "folder",
                   to, there->name, there->host, there->since));
    }
    mine = there->run;
  }
  if (mine.empty()) mine = drawn_number();
  if (own_number(run_folder, to) != mine) keep_number(run_folder, to, mine);
  return {.run = mine,
          .name = name,
          .host = base::host_name(),
          .since = base::utc_timestamp(),
          .holder = drawn_number()};
}

}  // namespace lockstep::checkpoint
