// lockstep inspect: what a checkpoint, a Hugging Face folder or a run's folder holds, and whether it is
// whole.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/checkpoint/audit.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/checkpoint_error.h"
#include "lockstep/checkpoint/crc32c.h"
#include "lockstep/checkpoint/older.h"
#include "lockstep/checkpoint/remote.h"
#include "lockstep/checkpoint/step_folders.h"
#include "lockstep/cli/commands.h"
#include "lockstep/cli/print.h"
#include "lockstep/terminal/table.h"
#include "lockstep/terminal/terminal.h"

namespace lockstep::cli {

namespace {

namespace fs = std::filesystem;
using checkpoint::Opened;
using checkpoint::TensorFile;
using nlohmann::json;

constexpr size_t kShortTable = 40;  // tensors that a person still reads

std::string bytes_text(int64_t bytes) { return base::human_bytes(static_cast<double>(bytes)); }

// Of the tensor's bytes, as they are read in pieces.
std::string crc_of(const TensorFile& file, const TensorFile::Entry& entry) {
  uint32_t crc = ~uint32_t{0};
  for (int64_t at = entry.begin; at < entry.end; at += checkpoint::kChunkBytes) {
    const std::string bytes = file.file().text(at, std::min(checkpoint::kChunkBytes, entry.end - at));
    crc = checkpoint::crc_remainder(std::as_bytes(std::span(bytes)), crc);
  }
  return fmt::format("{:08x}", ~crc);
}

json tensors_of(const Opened& opened, bool check) {
  json tensors = json::array();
  for (const TensorFile* file : opened.files()) {
    for (const auto& [name, entry] : file->entries()) {
      json one{{"name", name},
               {"dtype", device::name_of(entry.dtype)},
               {"shape", entry.shape},
               {"bytes", entry.bytes()},
               {"file", fs::path(file->path()).filename().string()}};
      if (check) one["crc32c"] = crc_of(*file, entry);
      tensors.push_back(std::move(one));
    }
  }
  return tensors;
}

json files_of(const Opened& opened) {
  json files = json::array();
  if (opened.manifest()) {
    for (const checkpoint::FileSummary& file : opened.manifest()->files)
      files.push_back({{"name", file.name}, {"bytes", file.bytes}, {"chunks", file.sums.size()}});
  } else {
    for (const TensorFile* file : opened.files())
      files.push_back({{"name", fs::path(file->path()).filename().string()}, {"bytes", file->file().size()}});
  }
  return files;
}

json report_of(const std::string& folder, bool check) {
  const Opened opened(folder);
  json out{{"folder", folder}, {"files", files_of(opened)}, {"tensors", tensors_of(opened, check)}};
  int64_t bytes = 0, parameters = 0;
  for (const json& file : out["files"]) bytes += file["bytes"].get<int64_t>();
  for (const json& tensor : out["tensors"]) {
    if (tensor["file"].get<std::string>().starts_with("optimizer-")) continue;
    int64_t count = 1;
    for (const json& size : tensor["shape"]) count *= size.get<int64_t>();
    parameters += count;
  }
  out["bytes"] = bytes;
  out["parameters"] = parameters;
  if (const auto& manifest = opened.manifest()) {
    out["step"] = manifest->step;
    out["layout"] = manifest->layout;
    out["params_hash"] = manifest->params_hash;
    out["recipe"] = manifest->recipe_toml;
    if (manifest->base) out["base"] = manifest->base->folder;
  }
  if (!opened.manifest() && opened.adapter() && !opened.adapter()->base.empty())
    out["base"] = opened.adapter()->base;
  const json config = json::parse(opened.config_json(), nullptr, false);
  if (config.is_object() && config.contains("model_type")) out["model_type"] = config["model_type"];
  if (check) {
    checkpoint::audit(opened);
    out["checked"] = opened.manifest() ? "all checksums and params_hash are correct"
                                       : "every byte is readable; there are no checksums";
  }
  return out;
}

// A name is printed as it is, unless it holds what a terminal would obey.
std::string name_text(const std::string& name) {
  const bool plain =
      std::none_of(name.begin(), name.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; });
  return plain ? name : base::quoted(name, name.size());
}

void print_report(const json& r, bool everything) {
  print("{}: {}{}, {} parameters, {} on disk\n", r["folder"].get<std::string>(),
        r.contains("step") ? fmt::format("checkpoint of step {}", r["step"].get<int64_t>())
                           : "model without a manifest",
        r.contains("model_type") ? fmt::format(" ({})", r["model_type"].dump()) : "",
        base::human_count(r["parameters"].get<double>()), bytes_text(r["bytes"].get<int64_t>()));
  if (r.contains("step")) {
    print("saved by {}; params_hash {}\n", name_text(r["layout"]), name_text(r["params_hash"]));
  }
  if (r.contains("base")) print("an adapter of the model in {}\n", name_text(r["base"]));
  // Names come last: they are the longest, and narrow terminals break the last column's lines.
  const bool checked = r.contains("checked");
  terminal::Table files({"bytes", "file"}),
      tensors({"type", "shape", checked ? "bytes, crc32c" : "bytes", "tensor"});
  for (const json& file : r["files"])
    files.add({bytes_text(file["bytes"].get<int64_t>()), name_text(file["name"])});
  size_t shown = 0;
  for (const json& one : r["tensors"]) {
    if (!everything && ++shown > kShortTable) break;
    const std::string bytes = bytes_text(one["bytes"].get<int64_t>());
    tensors.add({one["dtype"], checkpoint::shape_text(one["shape"].get<std::vector<int64_t>>()),
                 checked ? fmt::format("{}, {}", bytes, one["crc32c"].get<std::string>()) : bytes,
                 name_text(one["name"])});
  }
  const terminal::Terminal terminal = terminal::terminal_of(STDOUT_FILENO);
  print("\n{}\n{}", files.to_text(terminal), tensors.to_text(terminal));
  if (!everything && r["tensors"].size() > kShortTable)
    print("... and {} more (--all)\n", r["tensors"].size() - kShortTable);
  if (checked) print("\n{}\n", r["checked"].get<std::string>());
}

// The folders of a run's checkpoints, newest first, those that are not whole as well.
json checkpoints_of(const std::string& run) {
  const std::vector<std::string> whole = checkpoint::list(run);
  json all = json::array();
  std::vector<std::string> folders;
  for (const auto& entry : fs::directory_iterator(checkpoint::checkpoints_folder(run))) {
    if (entry.is_directory()) folders.push_back(entry.path().string());
  }
  std::sort(folders.rbegin(), folders.rend());
  for (const std::string& folder : folders) {
    const bool is_whole = std::find(whole.begin(), whole.end(), folder) != whole.end();
    all.push_back({{"folder", folder}, {"complete", is_whole}});
  }
  return all;
}

// Who asks whether a run is whole must not take the oldest checkpoint's word for it.
int end_of_check(const std::string& run, int damaged) {
  if (damaged == 0) return 0;
  throw checkpoint::CheckpointError(
      329,
      fmt::format("{} is damaged: {} newer than the checked checkpoint cannot be used and {} listed above",
                  run, damaged == 1 ? "one" : fmt::format("{}", damaged), damaged == 1 ? "is" : "are"));
}

}  // namespace

int inspect_command(Arguments& arguments) {
  std::string path;
  bool check = false, as_json = false, everything = false;
  arguments.positional("DIR", path, "a run, a checkpoint or a Hugging Face folder");
  arguments.flag("--check", check, "read every byte and verify every checksum");
  arguments.flag("--all", everything, "every tensor");
  arguments.flag("--json", as_json, "print as JSON");
  arguments.example("lockstep inspect runs/first", "the newest checkpoint of a run");
  arguments.example("lockstep inspect runs/first --check", "verify it, bit by bit");
  arguments.example("lockstep inspect s3://bucket/runs/first", "the newest in an object store");
  if (!arguments.parse()) return 0;
  if (path.empty()) throw base::ConfigError(109, "inspect needs a folder: lockstep inspect DIR");
  path = checkpoint::local_model(path);
  json run = nullptr;
  std::error_code error;
  if (fs::is_directory(checkpoint::checkpoints_folder(path), error)) run = checkpoints_of(path);
  const std::vector<std::string> folders = checkpoint::model_folders(path);
  const std::string& folder = folders.front();
  const int damaged = folder == path ? 0 : checkpoint::name_damaged(path, folders, remark_line);
  json report;
  try {
    report = report_of(folder, check);
  } catch (const base::DataError&) {
    checkpoint::offer_older(folder, remark_line);
    throw;
  }
  if (!run.is_null()) report["checkpoints"] = run;
  if (as_json) {
    print("{}\n", report.dump(-1, ' ', false, json::error_handler_t::replace));
    return end_of_check(path, check ? damaged : 0);
  }
  if (!run.is_null()) {
    for (const json& one : run)
      print("{}  {}\n", one["folder"].get<std::string>(),
            one["complete"].get<bool>() ? "complete" : "not complete");
    print("\n");
  }
  print_report(report, everything);
  return end_of_check(path, check ? damaged : 0);
}

}  // namespace lockstep::cli
