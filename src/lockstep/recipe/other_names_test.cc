#include "lockstep/recipe/other_names.h"

#include <gtest/gtest.h>

#include "lockstep/recipe/schema.h"

namespace lockstep::recipe {
namespace {

struct Row {
  const char* name;
  const char* remedy;  // a part of it
};

// What people type first who come from Hugging Face, PyTorch Lightning, Megatron, nanoGPT or torchtitan.
constexpr Row kRows[] = {
    {"learning_rate", "did you mean optim.lr?"},
    {"batch_size", "did you mean batch.global?"},
    {"max_steps", "did you mean run.steps?"},
    {"total_steps", "did you mean run.steps?"},
    {"train_iters", "did you mean run.steps?"},
    {"gradient_accumulation_steps", "did you mean batch.slices?"},
    {"lr_scheduler_type", "did you mean optim.schedule?"},
    {"lr_decay_style", "did you mean optim.schedule?"},
    {"model_name_or_path", "did you mean model.from?"},
    {"base_model", "did you mean model.from?"},
    {"model_max_length", "did you mean data.seq_len?"},
    {"max_seq_length", "did you mean data.seq_len?"},
    {"cutoff_len", "did you mean data.seq_len?"},
    {"dataset", "did you mean data.path?"},
    {"dataset_name", "did you mean data.path?"},
    {"train_file", "did you mean data.path?"},
    {"torch_dtype", "did you mean precision.compute?"},
    {"hidden_dropout_prob", "did you mean model.dropout?"},
    {"tensor_model_parallel_size", "did you mean parallel.tensor?"},
    {"dataloader_num_workers", "did you mean data.workers?"},
    {"accelerator", "did you mean run.device?"},
    {"epochs", "run.steps = epochs x samples / batch.global"},
    {"trainer.max_epochs", "run.steps = epochs"},
    {"num_train_epochs", "run.steps = epochs"},
    {"per_device_train_batch_size", "batch.global counts"},
    {"warmup_ratio", "optim.warmup counts steps"},
    {"bf16", "write precision.compute=bf16"},
    {"fp16", "write precision.compute=fp16"},
    {"eval_strategy", "log.eval_every"},
    {"save_strategy", "checkpoint.every"},
    {"report_to", "lockstep metrics RUN --to wandb"},
    {"num_gpus", "--nproc 4"},
    {"resume_from_checkpoint", "the same command again resumes"},
    {"use_peft", "tune.method=lora"},
    {"device_map", "leave it out"},
    {"torch-compile", "leave it out"},
    {"zzzzzzzzzz", "`lockstep explain` lists the keys"},
};

TEST(OtherNames, LeadToTheKeyOrSayWhatToDo) {
  for (const Row& row : kRows) {
    EXPECT_NE(remedy_for(row.name).find(row.remedy), std::string::npos)
        << row.name << ": " << remedy_for(row.name);
  }
}

TEST(OtherNames, OnlyExactOnesCountAsCalled) {
  EXPECT_EQ(key_called("learning-rate")->name, "optim.lr");
  EXPECT_EQ(key_called("Learning_Rate")->name, "optim.lr");
  EXPECT_EQ(key_called("optim.lr")->name, "optim.lr");
  EXPECT_EQ(key_called("log.every")->name, "log.every");
  EXPECT_EQ(key_called("lerning_rate"), nullptr);
  EXPECT_EQ(advice_for("epoch_count"), "");
}

// Advice would hide the key that has the name, or is called so.
TEST(OtherNames, AdviceIsForNamesThatNoKeyHas) {
  for (const Key& key : recipe_keys()) {
    EXPECT_EQ(advice_for(key.name), "") << key.name;
    for (const std::string& name : key.also) {
      if (name != "checkpoint") {  // a section too
        EXPECT_EQ(advice_for(name), "") << key.name;
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::recipe
