// The table of recipe keys: a new key is one member in recipe.h and one row here.
#include "lockstep/base/recipe.h"

#include <type_traits>
#include <utility>

#include "lockstep/base/schema.h"

namespace lockstep::base {
namespace {

using Member = decltype(Key::member);

// What a value may be, beyond its type. Nothing set: anything of that type.
struct Limits {
  std::vector<std::string> choices = {};
  std::optional<double> at_least = {}, at_most = {}, above = {};
  std::string pattern = {}, form = {};
  std::vector<std::string> also = {};
};

Key make_key(std::string name, Key::Type type, Member member, std::string meaning, const std::string& example,
             Limits limits = {}) {
  Key key;
  key.example = name + " = " + example;
  key.name = std::move(name);
  key.type = type;
  key.meaning = std::move(meaning);
  key.choices = std::move(limits.choices);
  key.at_least = limits.at_least;
  key.at_most = limits.at_most;
  key.above = limits.above;
  key.member = std::move(member);
  key.pattern = std::move(limits.pattern);
  key.form = std::move(limits.form);
  key.also = std::move(limits.also);
  return key;
}

template <class T>
constexpr Key::Type type_of() {
  if constexpr (std::is_same_v<T, bool>) return Key::Type::boolean;
  if constexpr (std::is_same_v<T, int64_t>) return Key::Type::integer;
  if constexpr (std::is_same_v<T, double>) return Key::Type::number;
  if constexpr (std::is_same_v<T, std::string>) return Key::Type::text;
  if constexpr (std::is_same_v<T, AutoInt>) return Key::Type::auto_integer;
}

// The key's name, type and place from the member itself, so that they cannot disagree.
#define MEMBER(path) \
#path, type_of < decltype(std::declval <Recipe&>().path)>(), [](Recipe & r) { return &r.path; }

constexpr double kMostSteps = 1e12;
constexpr double kMostWidth = 1 << 20;

void add_run(std::vector<Key>& keys) {
  keys.insert(
      keys.end(),
      {
          make_key(MEMBER(run.name), "The run's name: its folder under log.folder.", "\"first\"",
                   {.pattern = "[A-Za-z0-9_][A-Za-z0-9._+=,@-]{0,199}",
                    .form = "letters, digits and . _ - + = , @, not starting with a point or a dash",
                    .also = {"run_name", "experiment", "experiment_name"}}),
          make_key(
              MEMBER(run.seed),
              "Seeds everything random: first weights, sample order, dropout. The same seed and recipe give "
              "the same bits.",
              "1", {.at_least = 0, .also = {"random_seed", "manual_seed"}}),
          make_key(MEMBER(run.steps), "Optimizer steps to train for.", "600",
                   {.at_least = 1,
                    .at_most = kMostSteps,
                    .also = {"max_steps", "max_iters", "iterations", "num_steps", "train_steps"}}),
          make_key(MEMBER(run.device), "Where to train. auto takes the GPUs if there are any, else the CPU.",
                   "\"cuda:0\"",
                   {.pattern = "auto|cpu|cuda(:[0-9]{1,3})?", .form = "auto, cpu, cuda or cuda:N"}),
          make_key(MEMBER(run.exact),
                   "Same bits at any number of ranks, sharding and restart. false allows faster kernels that "
                   "are not repeatable.",
                   "true", {.also = {"deterministic"}}),
          make_key(
              MEMBER(run.nonfinite),
              "What to do when a loss or gradient is not a finite number: stop the run, or skip that update.",
              "\"skip\"", {.choices = {"stop", "skip"}}),
          make_key(MEMBER(run.threads),
                   "CPU threads that compute. auto: OMP_NUM_THREADS when set, else every core this process "
                   "may use.",
                   "8", {.at_least = 1, .at_most = 4096, .also = {"num_threads", "omp_num_threads"}}),
          make_key(MEMBER(run.hang_timeout),
                   "Seconds that ranks wait for one that does not come before all are started again. auto: "
                   "30, or ten times what that instruction usually takes.",
                   "120", {.at_least = 1, .at_most = 1e6, .also = {"watchdog", "heartbeat_timeout"}}),
      });
}

void add_model(std::vector<Key>& keys) {
  keys.insert(
      keys.end(),
      {
          make_key(
              MEMBER(model.family), "The architecture.", "\"llama\"",
              {.choices = {"gpt2", "llama", "mlp"}, .also = {"arch", "architecture", "model_type", "type"}}),
          make_key(
              MEMBER(model.preset),
              "A known size of the family, such as 124m, that sets the sizes below. Empty: the sizes as they "
              "stand here.",
              "\"124m\"", {.also = {"size"}}),
          make_key(MEMBER(model.layers), "Transformer layers (mlp: hidden layers).", "12",
                   {.at_least = 1,
                    .at_most = 65536,
                    .also = {"n_layer", "n_layers", "num_layers", "num_hidden_layers", "depth"}}),
          make_key(MEMBER(model.hidden),
                   "Width of the residual stream. A multiple of model.heads, unless model.head_dim is set.",
                   "768",
                   {.at_least = 1,
                    .at_most = kMostWidth,
                    .also = {"hidden_size", "d_model", "n_embd", "dim", "width", "embed_dim"}}),
          make_key(MEMBER(model.heads), "Attention heads.", "12",
                   {.at_least = 1,
                    .at_most = 65536,
                    .also = {"n_head", "n_heads", "num_heads", "num_attention_heads"}}),
          make_key(MEMBER(model.kv_heads),
                   "Heads of keys and values, shared by groups of query heads. auto: as many as model.heads.",
                   "4", {.at_least = 1, .at_most = 65536, .also = {"n_kv_heads", "num_key_value_heads"}}),
          make_key(MEMBER(model.head_dim), "llama: width of a head. auto: model.hidden / model.heads.", "128",
                   {.at_least = 1, .at_most = 256, .also = {"head_size", "d_head", "kv_channels"}}),
          make_key(
              MEMBER(model.ffn),
              "Width inside the feed-forward part. auto: 4 x hidden (gpt2, mlp), or 8/3 x hidden rounded up "
              "to 64 (llama).",
              "3072",
              {.at_least = 1,
               .at_most = 8 * kMostWidth,
               .also = {"intermediate_size", "ffn_dim", "n_inner", "mlp_dim", "ffn_hidden_size"}}),
          make_key(
              MEMBER(model.vocab), "Rows of the embedding. auto: the data's, rounded up to a multiple of 64.",
              "50304",
              {.at_least = 2, .at_most = 1 << 28, .also = {"vocab_size", "n_vocab", "padded_vocab_size"}}),
          make_key(MEMBER(model.context), "Positions the model can see. auto: data.seq_len.", "1024",
                   {.at_least = 1,
                    .at_most = 1 << 28,
                    .also = {"n_positions", "max_position_embeddings", "context_length", "n_ctx"}}),
          make_key(MEMBER(model.dropout), "Share of activations dropped while training.", "0.1",
                   {.at_least = 0, .at_most = 0.99, .also = {"dropout_rate", "resid_pdrop"}}),
          make_key(MEMBER(model.tied), "One matrix serves as embedding and as output head.", "false",
                   {.also = {"tie_word_embeddings", "tie_embeddings", "weight_tying"}}),
          make_key(MEMBER(model.init_std), "Standard deviation of the first weights.", "0.02",
                   {.at_least = 0, .at_most = 10, .also = {"initializer_range", "init_scale"}}),
          make_key(MEMBER(model.norm_epsilon), "Added to the variance inside each normalization.", "1e-5",
                   {.at_most = 1, .above = 0, .also = {"layer_norm_epsilon", "rms_norm_eps", "norm_eps"}}),
          make_key(MEMBER(model.rope_theta), "llama: base of the rotary frequencies.", "500000.0",
                   {.at_most = 1e12, .above = 0, .also = {"rope_base"}}),
          make_key(MEMBER(model.rope_scaling),
                   "llama: factor by which rotary positions are stretched to a longer context. 0 is none.",
                   "8.0", {.at_least = 0, .at_most = 1e6, .also = {"rope_factor", "rope_scaling_factor"}}),
          make_key(
              MEMBER(model.rope_type),
              "llama: how rope_scaling stretches. linear: all alike; llama3 and yarn: the slow rotations, "
              "which they tell from the fast ones by the two limits below.",
              "\"linear\"", {.choices = {"llama3", "linear", "yarn"}}),
          make_key(
              MEMBER(model.rope_low_freq),
              "llama: with rope_scaling, waves longer than rope_original_context / this are stretched fully.",
              "1.0", {.at_most = 1e6, .above = 0, .also = {"low_freq_factor", "beta_slow"}}),
          make_key(
              MEMBER(model.rope_high_freq),
              "llama: with rope_scaling, waves shorter than rope_original_context / this are left alone.",
              "4.0", {.at_most = 1e6, .above = 0, .also = {"high_freq_factor", "beta_fast"}}),
          make_key(MEMBER(model.rope_original_context),
                   "llama: with rope_scaling, the context length before it was stretched.", "8192",
                   {.at_least = 1, .at_most = 1 << 28, .also = {"original_max_position_embeddings"}}),
          make_key(MEMBER(model.rope_attention),
                   "llama: what yarn multiplies cosines and sines with. 0: 1 + ln(rope_scaling) / 10.", "1.2",
                   {.at_least = 0, .at_most = 100, .also = {"attention_factor", "mscale"}}),
          make_key(MEMBER(model.from),
                   "A Hugging Face folder (config.json and safetensors) to start from. Empty: fresh weights.",
                   "\"checkpoints/llama-3.2-1b\"",
                   {.also = {"pretrained", "init_from", "checkpoint", "model_path"}}),
      });
}

void add_data(std::vector<Key>& keys) {
  keys.insert(
      keys.end(),
      {
          make_key(MEMBER(data.kind),
                   "What the data is: grammar (made up on the spot, nothing to download), text (plain "
                   "files), jsonl "
                   "(one JSON object a line) or tokens (numbers already).",
                   "\"text\"",
                   {.choices = {"grammar", "text", "jsonl", "tokens"}, .also = {"format", "dataset"}}),
          make_key(MEMBER(data.path), "The file or folder to read. Not needed for grammar.",
                   "\"data/train.txt\"", {.also = {"train_path", "file", "dataset_path", "data_dir"}}),
          make_key(MEMBER(data.field), "jsonl: the field that holds the text.", "\"text\"",
                   {.also = {"text_field", "column"}}),
          make_key(MEMBER(data.seq_len), "Tokens a sample.", "1024",
                   {.at_least = 1,
                    .at_most = 1 << 28,
                    .also = {"sequence_length", "seq_length", "block_size", "max_seq_len", "max_length"}}),
          make_key(MEMBER(data.eval_fraction), "Share of the samples held out for evaluation.", "0.05",
                   {.at_least = 0, .at_most = 0.9, .also = {"val_fraction", "validation_split"}}),
          make_key(MEMBER(data.eval_path),
                   "A file of its own for evaluation; data.eval_fraction is then not used.",
                   "\"data/valid.txt\"", {.also = {"val_path", "validation_path"}}),
          make_key(MEMBER(data.grammar_seed), "grammar: which made-up language.", "7", {.at_least = 0}),
          make_key(MEMBER(data.prefetch), "Steps of data read ahead of the one that trains.", "4",
                   {.at_least = 1, .at_most = 1024, .also = {"prefetch_factor", "read_ahead"}}),
          make_key(MEMBER(data.workers), "Reading threads. They change the speed, never the order.", "2",
                   {.at_least = 1, .at_most = 256, .also = {"num_workers", "n_workers"}}),
          make_key(MEMBER(data.tokenizer),
                   "How text becomes tokens: bytes (256 tokens, nothing to install) or a tokenizer file.",
                   "\"bytes\"", {.also = {"tokenizer_path", "tokenizer_file"}}),
      });
}

void add_batch(std::vector<Key>& keys) {
  keys.insert(
      keys.end(),
      {
          make_key(MEMBER(batch.global), "Samples a step, over all ranks together.", "512",
                   {.at_least = 1,
                    .at_most = 1e9,
                    .also = {"batch_size", "global_batch_size", "train_batch_size", "size"}}),
          make_key(
              MEMBER(batch.slices),
              "Forward and backward passes that the batch is cut into; must divide batch.global. Part of the "
              "numeric contract: auto fits it to memory once and writes it down.",
              "32",
              {.at_least = 1,
               .at_most = 1 << 20,
               .also = {"gradient_accumulation_steps", "accumulate", "micro_batches", "grad_accum"}}),
          make_key(MEMBER(batch.strands),
                   "Independent sums of slices: the most data-parallel ranks this recipe can use with the "
                   "same bits. "
                   "auto: batch.slices, at most 8.",
                   "8", {.at_least = 1, .at_most = 1 << 20}),
      });
}

void add_optim(std::vector<Key>& keys) {
  keys.insert(
      keys.end(),
      {
          make_key(MEMBER(optim.name), "The optimizer.", "\"lion\"",
                   {.choices = {"adamw", "sgd", "lion"}, .also = {"optimizer", "type"}}),
          make_key(MEMBER(optim.lr), "Learning rate after the warm-up.", "3e-4",
                   {.at_least = 0, .at_most = 1000, .also = {"learning_rate", "eta", "max_lr", "peak_lr"}}),
          make_key(MEMBER(optim.schedule), "How the learning rate falls after the warm-up.", "\"wsd\"",
                   {.choices = {"constant", "linear", "cosine", "wsd", "inverse_sqrt"},
                    .also = {"lr_schedule", "scheduler", "lr_scheduler", "lr_scheduler_type", "decay"}}),
          make_key(MEMBER(optim.warmup), "Steps over which the learning rate rises from zero.", "200",
                   {.at_least = 0,
                    .at_most = kMostSteps,
                    .also = {"warmup_steps", "warmup_iters", "num_warmup_steps"}}),
          make_key(MEMBER(optim.min_lr), "Where the schedule ends, as a fraction of optim.lr.", "0.1",
                   {.at_least = 0, .at_most = 1, .also = {"min_lr_ratio", "final_lr", "lr_end"}}),
          make_key(MEMBER(optim.decay_fraction),
                   "wsd: the last part of the run, in which the learning rate falls.", "0.2",
                   {.at_least = 0, .at_most = 1, .also = {"cooldown", "cooldown_fraction"}}),
          make_key(MEMBER(optim.beta1), "adamw, lion: how long the first moment remembers.", "0.9",
                   {.at_least = 0, .at_most = 0.99999, .also = {"adam_beta1"}}),
          make_key(MEMBER(optim.beta2), "adamw, lion: how long the second moment remembers.", "0.95",
                   {.at_least = 0, .at_most = 0.9999999, .also = {"adam_beta2"}}),
          make_key(MEMBER(optim.epsilon), "adamw: added to the square root of the second moment.", "1e-8",
                   {.at_most = 1, .above = 0, .also = {"eps", "adam_epsilon"}}),
          make_key(MEMBER(optim.momentum), "sgd: share of the last update that is kept.", "0.9",
                   {.at_least = 0, .at_most = 0.99999}),
          make_key(MEMBER(optim.weight_decay),
                   "Decoupled weight decay of matrices and embeddings; norms and biases get none.", "0.1",
                   {.at_least = 0, .at_most = 10, .also = {"wd", "l2"}}),
          make_key(MEMBER(optim.decay_all), "Weight decay for norms and biases too.", "true"),
          make_key(
              MEMBER(optim.clip),
              "Largest global gradient norm; larger gradients are scaled down. 0 is none.", "1.0",
              {.at_least = 0,
               .at_most = 1e9,
               .also = {"grad_clip", "max_grad_norm", "gradient_clip", "clip_grad", "gradient_clipping"}}),
          make_key(MEMBER(optim.moments),
                   "Number format of what the optimizer keeps of past gradients. bf16 halves it, with the "
                   "second moment rounded at random.",
                   "\"bf16\"", {.choices = {"fp32", "bf16"}, .also = {"state_dtype", "optim_dtype"}}),
          make_key(
              MEMBER(optim.offload),
              "Keep what the optimizer keeps in the host's memory: less memory of the GPU, slower steps, "
              "the same bits.",
              "true", {.also = {"cpu_offload", "offload_optimizer"}}),
          make_key(
              MEMBER(optim.lr_scale),
              "Scales optim.lr with batch.global / optim.base_batch: not at all, in proportion, or with its "
              "square root.",
              "\"sqrt\"", {.choices = {"none", "linear", "sqrt"}, .also = {"lr_scaling"}}),
          make_key(MEMBER(optim.base_batch),
                   "Samples a step for which optim.lr was tuned; used by optim.lr_scale.", "256",
                   {.at_least = 1, .at_most = 1e9}),
      });
}

void add_precision(std::vector<Key>& keys) {
  keys.insert(
      keys.end(),
      {
          make_key(
              MEMBER(precision.compute),
              "Number format of forward and backward; the masters are always fp32. auto: bf16 where the "
              "device "
              "is fast at it, else fp16 with a loss scale, fp32 on CPU. fp8: bf16 with the products of the "
              "layers and the head in fp8.",
              "\"bf16\"",
              {.choices = {"auto", "fp32", "bf16", "fp16", "fp8"},
               .also = {"dtype", "precision", "mixed_precision", "amp"}}),
          make_key(MEMBER(precision.tf32), "Lets fp32 matrix products on GPUs round their inputs to TF32.",
                   "false", {.also = {"allow_tf32"}}),
          make_key(MEMBER(precision.loss_scale), "fp16: the factor on the loss at the start.", "65536.0",
                   {.at_least = 1, .at_most = 1e30, .also = {"init_scale"}}),
          make_key(MEMBER(precision.growth_interval),
                   "fp16: steps without overflow after which the loss scale doubles.", "2000",
                   {.at_least = 1, .at_most = kMostSteps}),
          make_key(MEMBER(precision.fp8_scaling),
                   "fp8: which values share a scale, found anew from the values themselves: those of a whole "
                   "matrix, of a row, or 128 neighbours (of weights 128 x 128).",
                   "\"row\"", {.choices = {"tensor", "row", "block"}, .also = {"fp8_recipe"}}),
          make_key(MEMBER(precision.fp8_gradients),
                   "fp8: format of the gradients that products read; e5m2 reaches further, e4m3 is finer. "
                   "Activations and weights are e4m3.",
                   "\"e4m3\"", {.choices = {"e5m2", "e4m3"}, .also = {"fp8_format"}}),
          make_key(MEMBER(precision.fp8_fast_sums),
                   "fp8: products whose sums GPUs may keep in the matrix units, with fewer bits and faster: "
                   "all, those of the forward pass, or none.",
                   "\"forward\"", {.choices = {"all", "forward", "none"}, .also = {"use_fast_accum"}}),
          make_key(MEMBER(precision.fp8_skip_first), "fp8: layers at the front whose products stay bf16.",
                   "1", {.at_least = 0, .at_most = 1e6}),
          make_key(MEMBER(precision.fp8_skip_last), "fp8: layers at the back whose products stay bf16.", "1",
                   {.at_least = 0, .at_most = 1e6}),
          make_key(MEMBER(precision.fp8_head),
                   "fp8: the head's products are fp8 too: faster, and losses suffer.", "true"),
      });
}

void add_parallel_and_memory(std::vector<Key>& keys) {
  keys.insert(
      keys.end(),
      {
          make_key(
              MEMBER(parallel.data),
              "Data-parallel ranks. auto: as many as are started. Only a check: ranks come from --nproc and "
              "--nnodes.",
              "4", {.at_least = 1, .at_most = 1 << 20, .also = {"dp", "data_parallel", "dp_size", "ddp"}}),
          make_key(
              MEMBER(parallel.zero),
              "What data-parallel ranks share out instead of copying: nothing (0, none), optimizer state (1, "
              "optimizer), gradients too (2, gradient), weights too (3, full).",
              "\"3\"",
              {.choices = {"0", "1", "2", "3", "none", "optimizer", "gradient", "full"},
               .also = {"zero_stage", "stage", "fsdp", "sharding"}}),
          make_key(
              MEMBER(parallel.shard),
              "With parallel.zero: ranks that share one copy of the model. Fewer than the data ranks is "
              "HSDP: several "
              "copies, each shared out. auto: all data ranks.",
              "8",
              {.at_least = 1, .at_most = 1 << 20, .also = {"shard_size", "hsdp", "sharding_group_size"}}),
          make_key(
              MEMBER(parallel.tensor),
              "Ranks that share every matrix product of a layer. They talk several times a layer: keep them "
              "inside one node.",
              "2",
              {.at_least = 1,
               .at_most = 1 << 20,
               .also = {"tp", "tensor_parallel", "tp_size", "model_parallel"}}),
          make_key(
              MEMBER(parallel.sequence),
              "With parallel.tensor: norms and residuals are split over tokens among the tensor ranks, which "
              "saves memory for the same traffic.",
              "true", {.also = {"sp", "sequence_parallel"}}),
          make_key(MEMBER(parallel.context), "Ranks that share every sequence, for long ones.", "2",
                   {.at_least = 1,
                    .at_most = 1 << 20,
                    .also = {"cp", "context_parallel", "cp_size", "ulysses", "ring_attention"}}),
          make_key(MEMBER(parallel.context_form),
                   "How context ranks attend to each other's tokens: keys and values go round in a ring, or "
                   "tokens "
                   "are exchanged for heads (all-to-all).",
                   "\"heads\"", {.choices = {"ring", "heads"}, .also = {"cp_comm_type"}}),
          make_key(MEMBER(parallel.pipeline),
                   "Ranks that share the blocks: each holds some and hands activations to the next.", "2",
                   {.at_least = 1, .at_most = 1 << 20, .also = {"pp", "pipeline_parallel", "pp_size"}}),
          make_key(MEMBER(parallel.schedule), "In which order pipeline stages work on slices.",
                   "\"zero-bubble\"",
                   {.choices = {"gpipe", "1f1b", "interleaved", "zero-bubble"},
                    .also = {"pipeline_schedule", "pp_schedule"}}),
          make_key(MEMBER(parallel.chunks),
                   "With parallel.schedule = interleaved: pieces of the model that a stage holds.", "2",
                   {.at_least = 1,
                    .at_most = 1 << 16,
                    .also = {"virtual_stages", "num_virtual_stages", "virtual_pipeline"}}),
          make_key(MEMBER(parallel.stages),
                   "Layers of each pipeline stage by hand, as 6,8,8,6. Empty: balanced by cost.",
                   "\"6,8,8,6\"",
                   {.pattern = "|[0-9]+(,[0-9]+)*",
                    .form = "numbers of layers with commas",
                    .also = {"device_map", "placement"}}),
          make_key(
              "parallel.auto", Key::Type::boolean, [](Recipe& r) { return &r.parallel.automatic; },
              "Choose zero, tensor, context, pipeline and recomputation by memory and a forecast of the step "
              "time, and say why.",
              "true", {.also = {"auto_parallel"}}),
          make_key(MEMBER(parallel.engine),
                   "What carries collectives. auto: nccl on GPUs; on CPUs shm when every rank is on one "
                   "host, else gloo.",
                   "\"gloo\"",
                   {.choices = {"auto", "shm", "gloo", "nccl"},
                    .also = {"backend", "dist_backend", "ddp_backend"}}),
          make_key(MEMBER(parallel.wire),
                   "Type of gradients between ranks. bf16 halves the traffic and needs run.exact = false.",
                   "\"bf16\"", {.choices = {"fp32", "bf16"}, .also = {"reduce_dtype", "grad_dtype"}}),
          make_key(MEMBER(parallel.bucket_mib),
                   "Gradients are reduced in buckets of blocks of at least this size, while the backward "
                   "pass goes on.",
                   "25.0", {.at_least = 0, .at_most = 1e6, .also = {"bucket_cap_mb", "bucket_size"}}),
          make_key(MEMBER(parallel.timeout),
                   "Seconds after which a collective that does not end is an error. At its default, at least "
                   "twice run.hang_timeout, whose verdict says more.",
                   "1800", {.at_least = 1, .at_most = 1e7, .also = {"ddp_timeout", "dist_timeout"}}),
          make_key(
              MEMBER(memory.recompute),
              "What backward computes again instead of keeping: nothing, cheap things (norms, SwiGLU), every "
              "block, each K-th block (every-K), or segments by name (attention,up). auto: cheap on a GPU "
              "where "
              "that should cost less than 1 % of a step, else nothing.",
              "\"full\"",
              {.pattern = "auto|none|cheap|full|every-[1-9][0-9]{0,4}|[a-z][a-z_]*(,[a-z][a-z_]*)*",
               .form = "auto, none, cheap, full, every-K or names of segments with commas",
               .also = {"checkpointing", "activation_checkpointing", "gradient_checkpointing", "remat"}}),
          make_key(MEMBER(memory.logits_chunk),
                   "Rows of logits held at a time. auto: about 64 MiB on CPU, 1 GiB on a GPU.", "4096",
                   {.at_least = 1, .at_most = 1 << 28, .also = {"loss_chunk", "ce_chunk"}}),
          make_key(MEMBER(memory.limit_gib),
                   "Pretend that the device has only this much memory. 0: all it has.", "40.0",
                   {.at_least = 0, .at_most = 1e6, .also = {"max_memory", "limit"}}),
      });
}

void add_log(std::vector<Key>& keys) {
  keys.insert(
      keys.end(),
      {
          make_key(
              MEMBER(log.every), "Steps between lines of metrics.jsonl.", "10",
              {.at_least = 1, .at_most = kMostSteps, .also = {"log_interval", "logging_steps", "log_every"}}),
          make_key(MEMBER(log.eval_every), "Steps between evaluations. 0: only at the end.", "200",
                   {.at_least = 0,
                    .at_most = kMostSteps,
                    .also = {"eval_interval", "eval_steps", "val_interval"}}),
          make_key(MEMBER(log.eval_batches), "Slices of held-out samples that an evaluation looks at.", "8",
                   {.at_least = 1, .at_most = 1e9, .also = {"eval_iters", "val_batches"}}),
          make_key(MEMBER(log.fingerprint),
                   "Writes params_hash, a hash of every weight, into each logged line.", "true",
                   {.also = {"params_hash"}}),
          make_key(MEMBER(log.fingerprint_every),
                   "Steps between comparisons of the weights that several ranks hold copies of: a bit that "
                   "flipped is noticed, and the rank named. 0: never.",
                   "100", {.at_least = 0, .at_most = kMostSteps}),
          make_key(MEMBER(log.folder), "Where the folders of runs are made.", "\"runs\"",
                   {.also = {"output_dir", "out_dir", "log_dir", "save_dir"}}),
      });
}

void add_checkpoint(std::vector<Key>& keys) {
  keys.insert(
      keys.end(),
      {
          make_key(MEMBER(checkpoint.every),
                   "Steps between checkpoints; 0 saves only at the end and when the run is stopped.", "1000",
                   {.at_least = 0, .at_most = kMostSteps, .also = {"save_steps", "save_every"}}),
          make_key(MEMBER(checkpoint.keep), "How many of the newest checkpoints stay on disk.", "2",
                   {.at_least = 1, .at_most = 1e6, .also = {"save_total_limit"}}),
          make_key(MEMBER(checkpoint.keep_every),
                   "Checkpoints of steps that this divides stay for good, beside the newest; 0: none do.",
                   "10000", {.at_least = 0, .at_most = kMostSteps, .also = {"keep_period"}}),
          make_key(MEMBER(checkpoint.async),
                   "Training goes on while a checkpoint is written; it waits only for the copy out of device "
                   "memory. "
                   "Takes host memory of the size of what a rank writes, twice where saves overlap.",
                   "false", {.also = {"async_save", "async_mode", "dist_ckpt_async"}}),
          make_key(MEMBER(checkpoint.snapshot_every),
                   "Steps between snapshots in the launcher's memory, from which ranks start again without a "
                   "disk. auto: so that they cost below 1 % of the time; 0: none.",
                   "10", {.at_least = 0, .at_most = kMostSteps, .also = {"memory_every"}}),
          make_key(MEMBER(checkpoint.replicas),
                   "Copies of each snapshot that the launcher of another node keeps, so that a lost node "
                   "costs no more than a lost rank.",
                   "1", {.at_least = 0, .at_most = 1}),
          make_key(MEMBER(checkpoint.notice),
                   "Seconds from the warning (SIGTERM, SIGUSR1, a preemption notice) to the end. auto: what "
                   "this place gives: Compute Engine 30, GKE 15, EC2 120, Slurm's --signal.",
                   "60", {.at_least = 1, .at_most = 1e6, .also = {"grace_period"}}),
      });
}

#undef MEMBER

}  // namespace

const std::vector<Section>& recipe_sections() {
  static const std::vector<Section> sections = {
      {"run", "What is run, how long and where."},
      {"model", "The network: family and sizes."},
      {"data", "What it learns from."},
      {"batch", "How many samples a step, and how they are cut: the numeric contract."},
      {"optim", "How the weights move."},
      {"precision", "Number formats."},
      {"parallel", "How ranks share the work; the result has the same bits."},
      {"memory", "What to do without when memory is short."},
      {"checkpoint", "What is saved, and when."},
      {"log", "What is written down, and where."},
  };
  return sections;
}

const std::vector<Key>& recipe_keys() {
  static const std::vector<Key> keys = [] {
    std::vector<Key> rows;
    for (auto add : {add_run, add_model, add_data, add_batch, add_optim, add_precision,
                     add_parallel_and_memory, add_checkpoint, add_log}) {
      add(rows);
    }
    return rows;
  }();
  return keys;
}

}  // namespace lockstep::base
