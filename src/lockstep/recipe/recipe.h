// A recipe: everything that decides what a run computes, as plain data with the defaults in place.
//
// The keys' names, meanings, ranges and examples stand beside these members in base/recipe*.cc, the one
// table that parsing, validation, `explain`, `init` and the JSON Schema are made from.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep::recipe {

// A whole number or "auto".
struct AutoInt {
  int64_t value = 0;
  bool is_auto = true;
  AutoInt() = default;
  AutoInt(int64_t n) : value(n), is_auto(false) {}  // NOLINT: a number is an AutoInt
  bool operator==(const AutoInt&) const = default;
};

struct Recipe {
  struct Run {
    std::string name = "first";
    int64_t seed = 1;
    int64_t steps = 400;
    std::string device = "auto";  // auto, cpu, cuda, cuda:N
    bool exact = true;
    std::string nonfinite = "stop";  // stop, skip
    AutoInt threads;                 // CPU threads of the compute lane
    AutoInt hang_timeout;            // seconds; auto: 30, or ten times what an instruction usually takes
    std::string budget = "";         // dollars that the run may cost; empty: any
    std::string price = "auto";      // dollars an hour of all machines, or a machine of the catalogue
  } run;

  struct Model {
    std::string family = "gpt2";  // gpt2, llama, qwen3, ...: model/families
    std::string preset = "";      // 124m, 350m, ...; empty: the sizes below
    int64_t layers = 4;
    int64_t hidden = 128;
    int64_t heads = 4;
    AutoInt kv_heads;  // auto: as many as heads
    AutoInt head_dim;  // width of a head; auto: hidden / heads
    AutoInt ffn;       // auto: 4 x hidden (gpt2, mlp), 8/3 x hidden rounded up to 64 (llama): the family's
    AutoInt vocab;     // auto: the data's, rounded up to a multiple of 64
    AutoInt context;   // positions; auto: data.seq_len
    double dropout = 0;
    bool tied = true;
    std::string activation = "auto";  // of the feed-forward part, as transformers names it
    bool attention_bias = false;      // q, k, v and the output of attention have biases
    bool mlp_bias = false;            // the feed-forward maps have biases
    int64_t sliding_window = 0;       // tokens that a query looks back at, its own among them; 0: all
    std::string layer_types = "";     // which layers have the window, "sliding*5,full", in turns; empty: all
    double attn_softcap = 0;          // scores become cap * tanh(score / cap); 0: none
    double final_softcap = 0;         // logits, the same
    double query_scalar = 0;          // scores are divided by its square root; 0: by that of head_dim
    bool parallel_residual = true;    // attention and feed-forward part read the same, and are added at once
    double init_std = 0.02;
    double norm_epsilon = 1e-5;
    double rope_theta = 10000;
    double rope_local_theta = 10000;   // of layers with a window, where they have their own
    double partial_rotary = 1;         // share of a head's columns that is rotated
    int64_t no_rope_every = 0;         // each so-many-th layer has no positions; 0: all have
    double rope_scaling = 0;           // factor by which positions are stretched; 0 is none
    std::string rope_type = "llama3";  // llama3, linear, yarn, dynamic, longrope: how
    double rope_low_freq = 1, rope_high_freq = 4;
    bool rope_whole_limits = true;  // yarn: blends between whole rotations
    double rope_attention = 0;  // what yarn and longrope multiply cosines and sines with; 0: as their authors
    int64_t rope_original_context = 8192;
    std::string rope_short_factor = "",
                rope_long_factor = "";  // longrope: one number a rotation, with commas
    std::string from = "";              // a Hugging Face folder to start from
  } model;

  struct Data {
    std::string kind = "auto";   // grammar, text, jsonl, chat, csv, ...; auto: what `path` is
    std::string path = "";       // files, folders and patterns with commas
    std::string field = "text";  // of formats with fields or columns
    int64_t seq_len = 64;
    double eval_fraction = 0.05;  // of the samples, held out
    std::string eval_path = "";   // files of their own for evaluation instead
    int64_t grammar_seed = 7;
    int64_t prefetch = 4;  // steps read ahead
    int64_t workers = 1;   // reading threads
    std::string tokenizer = "bytes";
    std::string chat_template = "";      // a file; empty: that of the tokenizer's or the model's folder
    std::string train_on = "assistant";  // assistant, last, all: which turns of a conversation
    std::string on_error = "stop";       // stop, skip: a row that cannot be used
    bool pack = false;                   // several documents to a sample, each for itself
    std::string mix = "";                // several sources with shares (recipe/mix.h)
    double mix_temperature = 1;          // of sources without weights: share ~ samples^(1/temperature)
  } data;

  struct Batch {
    int64_t global = 64;          // samples a step
    AutoInt slices;               // forward and backward passes the batch is cut into
    AutoInt strands;              // auto: min(slices, 8); the largest data-parallel width
    int64_t product_strands = 1;  // pieces of every product that tensor ranks share; the largest tensor width
    int64_t sequence_strands = 1;  // pieces of every sequence; the largest context width
  } batch;

  struct Optim {
    std::string name = "adamw";  // adamw, sgd, lion
    double lr = 8e-3;
    std::string schedule = "cosine";  // constant, linear, cosine, wsd, inverse_sqrt
    int64_t warmup = 50;              // steps
    double min_lr = 0.1;              // where the schedule ends, as a fraction of lr
    double decay_fraction = 0.2;      // wsd: the last part of it
    AutoInt decay_steps;              // how long the schedule is; auto: run.steps
    double beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8;
    double momentum = 0.9;          // sgd
    double weight_decay = 0.1;      // matrices and embeddings; norms and biases get none
    bool decay_all = false;         // true: norms and biases too
    double clip = 1.0;              // global gradient norm; 0 is none
    std::string moments = "fp32";   // fp32, bf16: what the optimizer keeps of past gradients
    bool offload = false;           // moments in the host's memory instead of the GPU's
    std::string lr_scale = "none";  // none, linear, sqrt: with batch.global / base_batch
    int64_t base_batch = 64;
    std::string groups = "";    // parameters with a rate, decay or rule of their own (recipe/groups.h)
    double layer_lr_decay = 1;  // rate of a block as a fraction of that of the block behind it
  } optim;

  struct Tune {
    std::string freeze = "";             // patterns of parameters' names with commas
    std::string train = "";              // the same; empty: all, or with lora only the adapters
    std::string method = "full";         // full, lora
    int64_t rank = 8;                    // lora: of the product that is added to a weight
    double alpha = 16;                   // lora: that product counts alpha / rank
    double dropout = 0;                  // lora: of what it reads
    std::string targets = "all";         // lora: maps that have one, by name or pattern, with commas
    std::string scaling = "rank";        // lora: rank, sqrt: what alpha is divided by
    std::string adapter = "";            // lora: a folder with PEFT's files to start from
    std::string base = "compute";        // lora: compute, nf4, fp8: how frozen weights of maps are kept
    std::string loss = "cross_entropy";  // cross_entropy, dpo
    double beta = 0.1;                   // dpo: how much a pair's reward counts
    double label_smoothing = 0;          // dpo: share of the pairs that are the wrong way round
  } tune;

  struct Precision {
    std::string compute = "auto";  // auto, fp32, bf16, fp16, fp8
    bool tf32 = true;
    double loss_scale = 65536;  // fp16: where the scaler starts
    int64_t growth_interval = 2000;
    // fp8: products of the layers and the head; all else is bf16
    std::string fp8_scaling = "tensor";  // tensor, row, block
    std::string fp8_gradients = "e5m2";  // e5m2, e4m3
    std::string fp8_fast_sums = "all";   // all, forward, none: which products
    int64_t fp8_skip_first = 0;          // layers at the front that stay bf16
    int64_t fp8_skip_last = 0;           // and at the back
    bool fp8_head = false;               // the head too
  } precision;

  struct Parallel {
    AutoInt data;
    std::string zero = "0";
    AutoInt shard;                      // ranks that share one copy; auto: all data ranks
    std::string engine = "auto";        // auto, shm, gloo, nccl
    int64_t tensor = 1;                 // ranks that share every product of a layer
    bool sequence = false;              // with tensor: norms and residuals split over tokens
    int64_t context = 1;                // ranks that share every sequence
    std::string context_form = "ring";  // ring, heads
    int64_t pipeline = 1;               // ranks that share the blocks
    std::string schedule = "1f1b";      // gpipe, 1f1b, interleaved, zero-bubble
    int64_t chunks = 2;                 // interleaved: pieces of the model that a stage holds
    std::string stages = "";            // layers of each piece by hand: "6,8,8,6"; empty: balanced
    bool automatic = false;             // choose a layout
    std::string wire = "fp32";          // gradients between ranks; bf16 only with run.exact = false
    double bucket_mib = 16;             // gradients that one reduction takes at least
    int64_t timeout = 600;              // seconds that a collective may take
  } parallel;

  struct Memory {
    std::string recompute = "auto";  // auto, none, cheap, full, every-K, or segments: "attention,up"
    AutoInt logits_chunk;            // rows of logits at a time; auto: about 64 MiB on CPU, 1 GiB on CUDA
    double limit_gib = 0;            // pretend the device has only this much; 0: all it has
  } memory;

  struct Checkpoint {
    int64_t every = 0;       // steps; 0: by time
    double minutes = 10;     // where every is 0; 0: only at the end
    int64_t keep = 2;        // the newest that stay
    int64_t keep_every = 0;  // steps; those of every such step stay too
    bool async = true;       // training goes on while a checkpoint is written
    AutoInt snapshot_every;  // steps between snapshots in the launcher's memory; auto: below 1 % of the time
    int64_t replicas = 0;    // 1: another node keeps a copy of each snapshot
    AutoInt notice;          // seconds from the warning to the end; auto: by where it runs
    std::string to;          // a folder of an object store that gets a copy of each: "s3://bucket/runs/a"
  } checkpoint;

  struct Log {
    int64_t every = 1;         // steps between lines of metrics.jsonl
    int64_t eval_every = 200;  // steps; 0: only at the end
    int64_t eval_batches = 32;
    bool fingerprint = false;       // params_hash in every logged line
    bool chain = false;             // and a link that seals all lines so far (run/shared/chain.h)
    int64_t fingerprint_every = 0;  // steps between comparisons of the copies that ranks hold; 0: never
    int64_t histograms = 0;         // steps between histograms of gradients, block by block; 0: none
    std::string folder = "runs";
  } log;
};

}  // namespace lockstep::recipe
