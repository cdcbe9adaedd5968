#include "lockstep/recipe/other_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <span>

#include "lockstep/base/text.h"
#include "lockstep/recipe/schema.h"

namespace lockstep::recipe {
namespace {

struct OtherName {
  std::string_view names;  // with blanks between
  std::string_view advice;
};

constexpr OtherName kOtherNames[] = {
    {"epochs num_epochs n_epochs num_train_epochs max_epochs epoch",
     "training is counted in steps: run.steps = epochs x samples / batch.global (--dry-run shows the "
     "samples)"},
    {"per_device_train_batch_size per_device_batch_size per_gpu_train_batch_size device_batch_size "
     "train_micro_batch_size_per_gpu batch_size_per_gpu",
     "batch.global counts the samples of a step on all ranks together, and batch.slices the parts in which "
     "they are computed"},
    {"per_device_eval_batch_size eval_batch_size per_gpu_eval_batch_size",
     "evaluation uses the slices of training (batch.slices); log.eval_batches says how many"},
    {"warmup_ratio warmup_fraction", "optim.warmup counts steps: the ratio times run.steps"},
    {"bf16 bfloat16 use_bf16 bf16_full_eval", "write precision.compute=bf16"},
    {"fp16 float16 half use_fp16", "write precision.compute=fp16"},
    {"fp8 use_fp8", "write precision.compute=fp8"},
    {"fp32 float32", "write precision.compute=fp32"},
    {"eval_strategy evaluation_strategy do_eval", "set log.eval_every, the steps between evaluations"},
    {"save_strategy always_save_checkpoint save_only_model",
     "set checkpoint.every, the steps between checkpoints"},
    {"logging_strategy logging_first_step", "set log.every, the steps between lines"},
    {"load_best_model_at_end metric_for_best_model greater_is_better",
     "evaluations are in the run's metrics, and checkpoint.keep_every keeps what they can choose from"},
    {"report_to wandb wandb_log wandb_project use_wandb tensorboard logger",
     "every run writes its metrics; `lockstep metrics RUN --to wandb` (or tensorboard, mlflow) hands them "
     "on"},
    {"nproc nproc_per_node num_gpus n_gpus gpus num_processes world_size num_ranks",
     "the number of ranks is an option: --nproc 4, in Python nproc=4"},
    {"nnodes num_nodes num_machines", "the number of nodes is an option: --nnodes 2"},
    {"strategy distributed_type distributed_backend",
     "set parallel.zero, tensor, context or pipeline; without them ranks are data parallel"},
    {"deepspeed fsdp_config deepspeed_config",
     "set parallel.zero = 1, 2 or 3 (3 is FSDP's FULL_SHARD), and optim.offload to keep moments on the host"},
    {"resume resume_from_checkpoint resume_from ckpt_path auto_resume overwrite_output_dir",
     "the same command again resumes its run; --resume FOLDER starts from another checkpoint, --resume never "
     "starts over"},
    {"lora use_lora use_peft peft qlora peft_config", "write tune.method=lora, for QLoRA with tune.base=nf4"},
    {"shuffle dataloader_shuffle shuffle_dataset", "samples are always shuffled, by run.seed"},
    {"drop_last dataloader_drop_last dataloader_pin_memory pin_memory remove_unused_columns group_by_length "
     "persistent_workers",
     "the loader needs no such setting; data.workers and data.prefetch are its keys"},
    {"compile torch_compile use_compile attn_implementation use_flash_attention_2 flash_attention "
     "use_flash_attn use_liger_kernel use_cache device_map low_cpu_mem_usage trust_remote_code "
     "ddp_find_unused_parameters",
     "leave it out: kernels are chosen and memory is planned without it"},
    {"push_to_hub hub_model_id hub_token",
     "`lockstep export` writes a folder that `huggingface-cli upload` takes"},
    {"label_smoothing_factor", "cross-entropy is not smoothed here; tune.label_smoothing is of DPO"},
    {"nesterov amsgrad neftune_noise_alpha ignore_index", "that is not implemented; leave it out"},
    {"max_new_tokens temperature top_p top_k do_sample",
     "text is continued by `lockstep generate`; see `lockstep generate --help`"},
    {"do_train do_predict", "leave it out: `lockstep train` trains, `lockstep eval` evaluates"},
};

// For those who write a section where they mean a key of it.
constexpr OtherName kSections[] = {
    {"data", "data is a section, not a value; set its keys: data.path=FILES, data.seq_len=1024"},
    {"model",
     "model is a section, not a value; set its keys: model.from=FOLDER for a model of Hugging Face's "
     "form, or model.family=llama for a new one"},
    {"optim", "optim is a section, not a value; set its keys: optim.name=adamw, optim.lr=3e-4"},
    {"checkpoint",
     "checkpoint is a section, not a value; set its keys: checkpoint.every=1000; to resume from "
     "one, --resume FOLDER"},
};

std::string as_key(std::string_view name) {
  std::string key(name.substr(name.rfind('.') + 1));
  std::transform(key.begin(), key.end(), key.begin(),
                 [](unsigned char c) { return c == '-' ? '_' : static_cast<char>(std::tolower(c)); });
  return key;
}

}  // namespace

std::string_view advice_for(std::string_view name) {
  const auto find = [](std::span<const OtherName> rows, const std::string& wanted) -> std::string_view {
    for (const OtherName& row : rows) {
      if (fmt::format(" {} ", row.names).find(fmt::format(" {} ", wanted)) != std::string::npos) {
        return row.advice;
      }
    }
    return "";
  };
  const std::string_view section = find(kSections, std::string(name));
  return section.empty() ? find(kOtherNames, as_key(name)) : section;
}

const Key* key_called(std::string_view name) {
  if (const Key* key = find_key(name)) return key;
  const std::string last = as_key(name);
  const std::string_view section = name.substr(0, std::min(name.size(), name.find('.')));
  const Key* found = nullptr;
  for (const Key& key : recipe_keys()) {
    const bool same =
        key.last_part() == last || std::find(key.also.begin(), key.also.end(), last) != key.also.end();
    if (same && (found == nullptr || key.section() == section)) found = &key;
  }
  return found;
}

std::string remedy_for(std::string_view unknown) {
  if (unknown.size() > 100) return "`lockstep explain` lists the keys";
  if (const std::string_view advice = advice_for(unknown); !advice.empty()) return std::string(advice);
  const std::string near = nearest_key(unknown);
  return near.empty() ? "`lockstep explain` lists the keys" : "did you mean " + near + "?";
}

}  // namespace lockstep::recipe
