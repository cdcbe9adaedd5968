// The table of recipe keys: a new key is one member in recipe.h and one row here, or in the file of its
// section (recipe_model.cc, recipe_parallel.cc).
#include "lockstep/recipe/recipe_rows.h"

namespace lockstep::recipe {
namespace {

Condition held_out_of_the_files(const std::string& key) {
  return all_of({not_ignored_by("data.kind")(key), is_empty("data.eval_path")});
}

}  // namespace

void add_run(std::vector<Key>& keys) {
  keys.insert(
      keys.end(),
      {
          make_key(MEMBER(run.name), without_run_option(), "The run's name: its folder under log.folder.",
                   "\"first\"",
                   {.pattern = "[A-Za-z0-9_][A-Za-z0-9._+=,@-]{0,199}",
                    .form = "up to 200 letters, digits and . _ - + = , @, not starting with a dot or a dash",
                    .also = {"run_name", "experiment", "experiment_name"}}),
          make_key(MEMBER(run.seed), always(),
                   "Seed of everything random: initial weights, sample order, dropout. The same seed and "
                   "recipe give the same bits.",
                   "1", {.at_least = 0, .also = {"random_seed", "manual_seed"}}),
          make_key(MEMBER(run.steps), always(), "Optimizer steps to train for.", "600",
                   {.at_least = 1,
                    .at_most = kMostSteps,
                    .also = {"max_steps", "max_iters", "train_iters", "iterations", "num_steps",
                             "train_steps", "total_steps", "num_training_steps"}}),
          make_key(MEMBER(run.device), always(),
                   "Where to train. auto: GPUs if there are any, otherwise the CPU.", "\"cuda:0\"",
                   {.pattern = "auto|cpu|cuda(:[0-9]{1,3})?|(rocm|hip|amd|xpu|intel|sycl|mps|metal|apple|tpu|"
                               "xla)(:[0-9]{1,3})?",
                    .form = "auto, cpu, cuda or cuda:N",
                    .also = {"accelerator"}}),
          make_key(MEMBER(run.exact), always(),
                   "Same bits with any number of ranks, any sharding and any restart. false allows faster "
                   "reductions that are not reproducible.",
                   "true", {.also = {"deterministic"}}),
          make_key(MEMBER(run.nonfinite), always(),
                   "What to do when a loss or gradient is not finite: stop the run, or skip that update.",
                   "\"skip\"", {.choices = {"stop", "skip"}}),
          make_key(MEMBER(run.threads), always(),
                   "Compute threads on the CPU. auto: OMP_NUM_THREADS if set, otherwise every core available "
                   "to this process.",
                   "8", {.at_least = 1, .at_most = 4096, .also = {"num_threads", "omp_num_threads"}}),
          make_key(MEMBER(run.hang_timeout), under_a_launcher(),
                   "Seconds that ranks wait for a rank that does not arrive before all are restarted. auto: "
                   "30, or ten times what that instruction usually takes.",
                   "120", {.at_least = 1, .at_most = 1e6, .also = {"watchdog", "heartbeat_timeout"}}),
          make_key(MEMBER(run.budget), always(),
                   "Dollars that the run may cost, all of its processes together: it saves and stops with "
                   "exit code 75 before they are spent. Events tell of 50 and 90 %. Empty: no limit.",
                   "\"$50\"",
                   {.pattern = "(\\$?[0-9][0-9,]*(\\.[0-9]+)?k?)?",
                    .form = "dollars, such as \"$50\" or \"$1,200\"",
                    .also = {"max_cost", "budget_usd", "max_usd"}}),
          make_key(MEMBER(run.price), is_not("run.budget", {""}),
                   "What run.budget counts with: dollars an hour of all machines of the run, or a machine of "
                   "`lockstep prices` with a tariff and a region (\"a3-highgpu-8g spot us-central1\"). auto: "
                   "LOCKSTEP_MACHINE, or the machine's own word where it has one (EC2).",
                   "\"12.50\"", {.also = {"hourly_price", "usd_per_hour"}}),
      });
}

void add_data(std::vector<Key>& keys) {
  keys.insert(
      keys.end(),
      {
          make_key(MEMBER(data.kind), always(),
                   "Kind of data: grammar (generated on the fly, no download needed), text (plain files), "
                   "jsonl (one JSON object per line), chat (conversations), preference (chosen and rejected "
                   "answers), csv, parquet, arrow, mds "
                   "(MosaicML), tokens (token "
                   "numbers) or mix (the sources in data.mix). auto: detected from the files in data.path, "
                   "or grammar without a path.",
                   "\"text\"",
                   {.choices = choice_names("data.kind", {"auto"}), .also = {"format", "dataset_type"}}),
          make_key(MEMBER(data.path), not_ignored_by("data.kind"),
                   "What to read: a file, a folder (recursively), a pattern such as data/*.txt, or a list or "
                   "comma-separated string of these. ~ is the home folder; paths in a recipe are looked up "
                   "next to the recipe first. Not needed for grammar.",
                   "\"data/train.txt\"",
                   {.also = {"dataset", "datasets", "dataset_name", "dataset_path", "train_path",
                             "train_file", "train_files", "file", "data_dir"},
                    .list = true,
                    .names = Key::Names::input}),
          make_key(MEMBER(data.field), read_by("data.kind"),
                   "The field or column with the text, or with tokens (lists of integers).", "\"text\"",
                   {.also = {"text_field", "column", "text_column"}}),
          make_key(MEMBER(data.on_error), read_by("data.kind"),
                   "A document or conversation that cannot be used (no such field, null, not UTF-8): stop "
                   "before the first "
                   "step, or skip it; what was skipped is counted, and the first are listed.",
                   "\"skip\"", {.choices = {"stop", "skip"}}),
          make_key(MEMBER(data.mix), read_by("data.kind"),
                   "Several sources instead of data.path, each with its share of the samples: "
                   "\"web/=0.7, code/=0.3\". More words: path, weight, name, epochs (at most so many of this "
                   "source), eval (its evaluation files), kind, field. In a file also as tables, "
                   "[[data.mix]].",
                   "\"web/=0.7, code/=0.3\"",
                   {.also = {"data_mix", "mixture", "blend", "sources"},
                    .list = true,
                    .tables = true,
                    .names = Key::Names::sources}),
          make_key(MEMBER(data.mix_temperature), read_by("data.kind"),
                   "data.mix without weights: a source's share is proportional to its samples to the power "
                   "1/temperature. 1: as large as it is; larger values bring the shares closer together.",
                   "2", {.at_least = 0.01, .at_most = 1000, .also = {"sampling_temperature"}}),
          make_key(MEMBER(data.seq_len), always(), "Tokens per sample.", "1024",
                   {.at_least = 1,
                    .at_most = 1 << 28,
                    .also = {"sequence_length", "seq_length", "block_size", "max_seq_len", "max_seq_length",
                             "max_length", "model_max_length", "cutoff_len"}}),
          make_key(MEMBER(data.eval_fraction), held_out_of_the_files,
                   "Fraction of the samples held out for evaluation.", "0.05",
                   {.at_least = 0,
                    .at_most = 0.9,
                    .also = {"val_fraction", "validation_split", "val_split", "eval_split", "test_size"}}),
          make_key(MEMBER(data.eval_path), not_ignored_by("data.kind"),
                   "Separate files for evaluation, as in data.path; data.eval_fraction is then ignored.",
                   "\"data/valid.txt\"",
                   {.also = {"val_path", "validation_path"}, .list = true, .names = Key::Names::input}),
          make_key(MEMBER(data.grammar_seed), read_by("data.kind"), "grammar: which synthetic language.", "7",
                   {.at_least = 0}),
          make_key(MEMBER(data.prefetch), always(), "Steps of data to read ahead.", "4",
                   {.at_least = 1, .at_most = 1024, .also = {"prefetch_factor", "read_ahead"}}),
          make_key(MEMBER(data.workers), always(), "Reader threads. They affect speed, never the order.", "2",
                   {.at_least = 1,
                    .at_most = 256,
                    .also = {"num_workers", "n_workers", "dataloader_num_workers"}}),
          make_key(MEMBER(data.tokenizer), read_by("data.kind"),
                   "How text becomes tokens: as bytes (256 tokens), or by a tokenizer: a tokenizer.json, a "
                   "*.tiktoken, "
                   "a tokenizer.model, a tekken.json, or a folder that holds one. tokens: who made the "
                   "files, and how "
                   "they read as text.",
                   "\"llama3/\"", {.also = {"tokenizer_path", "tokenizer_file"}, .names = Key::Names::input}),
          make_key(MEMBER(data.chat_template), read_by("data.kind"),
                   "chat: a file with the chat template, a .jinja or a tokenizer_config.json. Empty: the one "
                   "in the "
                   "folder of the tokenizer or of model.from.",
                   "\"chatml.jinja\"", {.names = Key::Names::input}),
          make_key(
              MEMBER(data.train_on), read_by("data.kind"),
              "chat: which tokens are trained on: assistant (every message of the assistant), last (its last "
              "message) or all.",
              "\"last\"", {.choices = {"assistant", "last", "all"}, .also = {"train_on_inputs", "mask"}}),
          make_key(MEMBER(data.pack), read_by("data.kind"),
                   "Fill samples with several whole documents. Attention and positions stay inside each "
                   "document, so "
                   "a document is trained on as if it were alone.",
                   "true", {.also = {"packing", "sample_packing"}}),
      });
}

void add_batch(std::vector<Key>& keys) {
  keys.insert(
      keys.end(),
      {
          make_key(MEMBER(batch.global), always(), "Samples per step, over all ranks.", "512",
                   {.at_least = 1,
                    .at_most = 1e9,
                    .also = {"batch_size", "global_batch_size", "train_batch_size", "size"}}),
          make_key(MEMBER(batch.slices), always(),
                   "Number of micro-batches the batch is split into; must divide batch.global. Part of the "
                   "numeric contract: auto fits it to memory once and records it.",
                   "32",
                   {.at_least = 1,
                    .at_most = 1 << 20,
                    .also = {"gradient_accumulation_steps", "accumulate", "micro_batches", "grad_accum"}}),
          make_key(MEMBER(batch.strands), always(),
                   "Independent gradient sums over slices: the maximum number of data-parallel ranks with "
                   "the same bits. auto: batch.slices, at most 8.",
                   "8", {.at_least = 1, .at_most = 1 << 20}),
          make_key(
              MEMBER(batch.product_strands), always(),
              "Pieces that every product shared by tensor ranks is summed in, a power of two: the maximum "
              "parallel.tensor with the same bits, on one rank too. 1: tensor layouts are equal to "
              "rounding.",
              "8", {.at_least = 1, .at_most = 64}),
          make_key(
              MEMBER(batch.sequence_strands), always(),
              "Pieces that every sequence is computed in, a power of two: the maximum parallel.context with "
              "the same bits, on one rank too. 1: context layouts are equal to rounding.",
              "8", {.at_least = 1, .at_most = 64}),
      });
}

void add_log(std::vector<Key>& keys) {
  keys.insert(
      keys.end(),
      {
          make_key(
              MEMBER(log.every), always(), "Steps between lines of metrics.jsonl.", "10",
              {.at_least = 1, .at_most = kMostSteps, .also = {"log_interval", "logging_steps", "log_every"}}),
          make_key(MEMBER(log.eval_every), with_held_out_data(),
                   "Steps between evaluations. 0: only at the end.", "200",
                   {.at_least = 0,
                    .at_most = kMostSteps,
                    .also = {"eval_interval", "eval_steps", "val_interval"}}),
          make_key(MEMBER(log.eval_batches), with_held_out_data(), "Held-out slices per evaluation.", "8",
                   {.at_least = 1, .at_most = 1e9, .also = {"eval_iters", "val_batches"}}),
          make_key(MEMBER(log.fingerprint), always(),
                   "Write params_hash, a hash of all weights, to each logged line.", "true",
                   {.also = {"params_hash"}}),
          make_key(MEMBER(log.fingerprint_every), on_several_ranks(),
                   "Steps between comparisons of replicated weights across ranks: detects bit flips and "
                   "names the rank. 0: never.",
                   "100", {.at_least = 0, .at_most = kMostSteps}),
          make_key(
              MEMBER(log.chain), always(),
              "Chain the logged lines: each has params_hash and a digest of itself and of all lines before "
              "it, so that `lockstep audit` detects changed, removed or invented steps. The key that "
              "signs them is named in LOCKSTEP_CHAIN_KEY.",
              "true", {.also = {"notarize", "hash_chain"}}),
          make_key(MEMBER(log.histograms), always(),
                   "Steps between histograms of every block's gradient, written to histograms.jsonl; such a "
                   "step takes longer. 0: none.",
                   "100",
                   {.at_least = 0,
                    .at_most = kMostSteps,
                    .also = {"histogram_every", "watch_freq", "grad_histograms"}}),
          make_key(MEMBER(log.folder), without_run_option(), "Parent folder of run folders.", "\"runs\"",
                   {.also = {"output_dir", "out_dir", "log_dir", "save_dir"}, .names = Key::Names::output}),
      });
}

void add_checkpoint(std::vector<Key>& keys) {
  keys.insert(
      keys.end(),
      {
          make_key(MEMBER(checkpoint.every), always(),
                   "Steps between checkpoints; 0 saves by time (checkpoint.minutes). A run also saves at its "
                   "end, when it is stopped, and before a non-finite loss ends it.",
                   "1000", {.at_least = 0, .at_most = kMostSteps, .also = {"save_steps", "save_every"}}),
          make_key(MEMBER(checkpoint.minutes), is("checkpoint.every", {"0"}),
                   "Minutes between checkpoints if checkpoint.every is 0, and at least a hundred times as "
                   "long as a save pauses training. 0: no saves by time.",
                   "30.0",
                   {.at_least = 0, .at_most = 1e6, .also = {"save_minutes", "save_interval_minutes"}}),
          make_key(MEMBER(checkpoint.keep), always(), "Number of newest checkpoints to keep.", "2",
                   {.at_least = 1, .at_most = 1e6, .also = {"save_total_limit"}}),
          make_key(MEMBER(checkpoint.keep_every), always(),
                   "Also keep checkpoints of steps that are multiples of this, permanently; 0: none.",
                   "10000", {.at_least = 0, .at_most = kMostSteps, .also = {"keep_period"}}),
          make_key(MEMBER(checkpoint.async), always(),
                   "Continue training while a checkpoint is written; training pauses only for the copy out "
                   "of device memory. Needs host memory for what a rank writes, twice if saves overlap.",
                   "false", {.also = {"async_save", "async_mode", "dist_ckpt_async"}}),
          make_key(MEMBER(checkpoint.snapshot_every), under_a_launcher(),
                   "Steps between snapshots in the launcher's memory, from which ranks restart without a "
                   "disk. auto: so that they cost less than 1 % of the time; 0: none.",
                   "10", {.at_least = 0, .at_most = kMostSteps, .also = {"memory_every"}}),
          make_key(MEMBER(checkpoint.replicas), on_several_nodes(),
                   "Copies of each snapshot kept by another node's launcher, so that a lost node costs no "
                   "more than a lost rank.",
                   "1", {.at_least = 0, .at_most = 1}),
          make_key(MEMBER(checkpoint.notice), always(),
                   "Seconds from the preemption warning (SIGTERM, SIGUSR1, a preemption notice) to the end "
                   "of the machine. auto: Compute Engine 30, GKE 15, EC2 120, Slurm's --signal.",
                   "60", {.at_least = 1, .at_most = 1e6, .also = {"grace_period"}}),
          make_key(
              MEMBER(checkpoint.to), always(),
              "A folder of an object store (s3://, gs://, abfs://, or file:// for another disk) that gets "
              "a copy of every checkpoint, in the background. A run whose own folder is empty resumes "
              "from there.",
              "\"s3://bucket/runs/first\"",
              {.pattern = "((s3|gs|gcs|abfss?|file)://[^?#\\s]+)?",
               .form = "a URI such as s3://bucket/runs/first, without a query",
               .also = {"upload_to", "save_uri", "remote", "checkpoint_uri"},
               .names = Key::Names::output}),
      });
}

const std::vector<Section>& recipe_sections() {
  static const std::vector<Section> sections = {
      {"run", "What is run, how long and where."},
      {"model", "The network: family and sizes."},
      {"data", "What it learns from."},
      {"batch", "How many samples per step, and how they are cut: the numeric contract."},
      {"optim", "How the weights move."},
      {"tune", "Which parameters are trained."},
      {"precision", "Number formats."},
      {"parallel", "How the work is distributed over ranks; the bits stay the same."},
      {"memory", "How to save memory."},
      {"checkpoint", "What to save, and when."},
      {"log", "What to log, and where."},
  };
  return sections;
}

const std::vector<Key>& recipe_keys() {
  static const std::vector<Key> keys = [] {
    std::vector<Key> rows;
    for (auto add : {add_run, add_model, add_data, add_batch, add_optim, add_tune, add_precision,
                     add_parallel_and_memory, add_checkpoint, add_log}) {
      add(rows);
    }
    return rows;
  }();
  return keys;
}

}  // namespace lockstep::recipe
