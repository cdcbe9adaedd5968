// lockstep export: a checkpoint's weights as a Hugging Face folder, in another type if wanted.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/checkpoint/export.h"
#include "lockstep/checkpoint/older.h"
#include "lockstep/cli/commands.h"
#include "lockstep/cli/print.h"

namespace lockstep::cli {

namespace {

std::optional<device::DType> type_of(const std::string& word) {
  if (word.empty()) return std::nullopt;
  for (const device::DType type : {device::DType::f32, device::DType::bf16, device::DType::f16}) {
    if (word == device::name_of(type)) return type;
  }
  throw base::ConfigError(109, fmt::format("--dtype {}: expected fp32, bf16 or fp16", word));
}

}  // namespace

int export_command(Arguments& arguments) {
  std::string source, target, dtype;
  bool json = false;
  arguments.positional("SRC", source, "a run, a checkpoint or a Hugging Face folder");
  arguments.positional("DST", target, "a new folder");
  arguments.option("--dtype", dtype, "fp32, bf16 or fp16; default: as stored");
  arguments.flag("--json", json, "print what was written as JSON");
  arguments.example("lockstep export runs/first first-model",
                    "the newest checkpoint's weights, for transformers");
  arguments.example("lockstep export runs/first first-bf16 --dtype bf16", "half the size");
  if (!arguments.parse()) return 0;
  if (source.empty() || target.empty())
    throw base::ConfigError(109, "export needs two folders: lockstep export SRC DST");
  const std::optional<device::DType> type = type_of(dtype);
  checkpoint::Exported done;
  const auto write = [&](const std::string& one) {
    done = checkpoint::export_model(checkpoint::Opened(one), target, type);
  };
  const std::string folder = checkpoint::read_newest(source, write, remark_line);
  if (done.overflowed > 0) {
    remark("warning: {} weights overflow in {} and became infinite; use bf16 or fp32\n", done.overflowed,
           dtype);
  }
  if (json) {
    print("{}\n", nlohmann::json{{"source", folder},
                                 {"folder", target},
                                 {"tensors", done.tensors},
                                 {"bytes", done.bytes},
                                 {"files", done.files},
                                 {"config", done.has_config},
                                 {"overflowed", done.overflowed}}
                      .dump());
  } else {
    print("{} tensors, {}, from {} to {}\n", done.tensors, base::human_bytes(static_cast<double>(done.bytes)),
          folder, target);
    if (!done.has_config) print("no config.json was written: transformers does not have this model family\n");
  }
  return 0;
}

}  // namespace lockstep::cli
