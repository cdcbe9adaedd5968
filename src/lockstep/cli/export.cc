// lockstep export: a checkpoint's weights as a Hugging Face folder, in another type if wanted; of a LoRA run
// the adapter as PEFT's folder, or merged into the weights.
#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/checkpoint/export.h"
#include "lockstep/checkpoint/older.h"
#include "lockstep/cli/commands.h"
#include "lockstep/cli/print.h"
#include "lockstep/text/tokenizer.h"

namespace lockstep::cli {

namespace {

std::optional<device::DType> type_of(const std::string& word) {
  if (word.empty()) return std::nullopt;
  for (const device::DType type : {device::DType::f32, device::DType::bf16, device::DType::f16}) {
    if (word == device::name_of(type)) return type;
  }
  throw base::ConfigError(109, fmt::format("--dtype {}: expected fp32, bf16 or fp16", word));
}

// A model that began from nothing has the end of its tokenizer.
checkpoint::Companions companions_with_tokens(const checkpoint::Opened& source) {
  checkpoint::Companions all = checkpoint::companions_of(source);
  for (const checkpoint::Companion& one : all.files) {
    const std::string folder = std::filesystem::path(one.from).parent_path().string();
    if (text::find_tokenizer(folder).empty()) continue;
    try {
      const std::unique_ptr<text::Tokenizer> tokenizer = text::open_tokenizer(folder);
      const auto add = [&](const char* key, std::optional<int32_t> id) {
        if (id) all.tokens.try_emplace(key, std::to_string(*id));
      };
      add("bos_token_id", tokenizer->begin_token());
      add("eos_token_id", tokenizer->end_token());
      add("pad_token_id", tokenizer->pad_token());
    } catch (const base::Error&) {
      // One that transformers may read all the same.
    }
    break;
  }
  return all;
}

}  // namespace

int export_command(Arguments& arguments) {
  std::string source, target, out, dtype;
  bool json = false, merge = false;
  arguments.positional("SRC", source, "a run, a checkpoint or a Hugging Face folder");
  arguments.positional("DST", target, "a new folder");
  arguments.option("--out", out, "same as DST");
  arguments.flag("--merge", merge, "of a LoRA run: the whole model, with the adapter added to its weights");
  arguments.option("--dtype", dtype, "fp32, bf16 or fp16; default: as stored");
  arguments.flag("--json", json, "print what was written as JSON");
  arguments.example("lockstep export runs/first first-model",
                    "the newest checkpoint's weights, for transformers");
  arguments.example("lockstep export runs/first first-bf16 --dtype bf16", "half the size");
  arguments.example("lockstep export runs/lora adapter", "a LoRA run's adapter, for PEFT");
  arguments.example("lockstep export runs/lora --merge --out merged",
                    "its model and adapter in one, for transformers");
  if (!arguments.parse()) return 0;
  if (!target.empty() && !out.empty() && target != out) {
    throw base::ConfigError(109, fmt::format("give one folder to write to, not both {} and --out {}",
                                             base::quoted(target), base::quoted(out)));
  }
  if (target.empty()) target = out;
  if (source.empty() || target.empty())
    throw base::ConfigError(109, "export needs two folders: lockstep export SRC DST");
  const std::optional<device::DType> type = type_of(dtype);
  checkpoint::Exported done;
  bool adapter = false;
  const auto write = [&](const std::string& one) {
    const checkpoint::Opened opened(one);
    adapter = checkpoint::has_adapter(opened);
    if (merge && !adapter) {
      throw base::ConfigError(
          109, fmt::format("--merge: {} holds no adapter, so there is nothing to merge", base::quoted(one)));
    }
    if (merge) {
      const checkpoint::Opened merged(one, checkpoint::Adapters::merged);
      done = checkpoint::export_model(merged, target, type, companions_with_tokens(merged));
    } else {
      done = adapter ? checkpoint::export_adapter(opened, target, type)
                     : checkpoint::export_model(opened, target, type, companions_with_tokens(opened));
    }
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
                                 {"companions", done.companions},
                                 {"adapter", adapter && !merge},
                                 {"merged", merge},
                                 {"overflowed", done.overflowed}}
                      .dump());
  } else {
    print("{} tensors, {}, from {} to {}\n", done.tensors, base::human_bytes(static_cast<double>(done.bytes)),
          folder, target);
    if (!done.companions.empty()) print("with {}\n", base::join(done.companions, ", "));
    if (!done.has_config) print("no config.json was written: transformers does not have this model family\n");
  }
  return 0;
}

}  // namespace lockstep::cli
