// Recipe keys of what is trained and how it learns.
#include "lockstep/recipe/recipe_rows.h"

namespace lockstep::recipe {
namespace {

ConditionOfKey of_family() { return read_by("model.family"); }

// Rotary positions that are stretched, in one of these ways.
ConditionOfKey stretched(const std::vector<std::string>& ways = {}) {
  return [=](const std::string& key) {
    std::vector<Condition> conditions = {of_family()(key), above("model.rope_scaling", 0)};
    if (!ways.empty()) conditions.push_back(is("model.rope_type", ways));
    return all_of(conditions);
  };
}

// Of heads. What "auto" comes to is written into a run's config.toml for every family, and is not the user's
// choice.
ConditionOfKey with_attention(bool (*is_usual)(const Recipe::Model&)) {
  return [=](const std::string& key) -> Condition {
    const Condition attends = not_ignored_by("model.family")(key);
    if (!attends.broken) return attends;
    return {attends.when, [=](const Circumstances& c) {
              return is_usual(c.recipe.model) ? std::string() : attends.broken(c);
            }};
  };
}

constexpr const char* kLayerTypes = "|(full|sliding)(\\*[0-9]{1,4})?( *, *(full|sliding)(\\*[0-9]{1,4})?)*";
constexpr const char* kNumbers = "|[0-9.eE+-]+( *, *[0-9.eE+-]+)*";

}  // namespace

void add_model(std::vector<Key>& keys) {
  keys.insert(
      keys.end(),
      {
          make_key(MEMBER(model.family), always(), "The architecture.", "\"llama\"",
                   {.choices = choice_names("model.family"),
                    .also = {"arch", "architecture", "model_type", "type"}}),
          make_key(MEMBER(model.preset), always(),
                   "A standard size of the family, such as 124m, which sets the sizes below. Empty: the "
                   "sizes given here.",
                   "\"124m\"", {.also = {"size"}}),
          make_key(MEMBER(model.layers), always(), "Transformer layers (mlp: hidden layers).", "12",
                   {.at_least = 1,
                    .at_most = 4096,
                    .also = {"n_layer", "n_layers", "num_layers", "num_hidden_layers", "depth"}}),
          make_key(MEMBER(model.hidden), always(),
                   "Width of the residual stream. A multiple of model.heads, unless model.head_dim is set.",
                   "768",
                   {.at_least = 1,
                    .at_most = kMostWidth,
                    .also = {"hidden_size", "d_model", "n_embd", "dim", "width", "embed_dim"}}),
          make_key(MEMBER(model.heads), not_ignored_by("model.family"), "Attention heads.", "12",
                   {.at_least = 1,
                    .at_most = 65536,
                    .also = {"n_head", "n_heads", "num_heads", "num_attention_heads"}}),
          make_key(MEMBER(model.kv_heads),
                   with_attention([](const Recipe::Model& m) { return m.kv_heads == AutoInt(m.heads); }),
                   "Key/value heads, each shared by a group of query heads. auto: model.heads.", "4",
                   {.at_least = 1, .at_most = 65536, .also = {"n_kv_heads", "num_key_value_heads"}}),
          make_key(MEMBER(model.head_dim), with_attention([](const Recipe::Model& m) {
                     return m.head_dim == AutoInt(m.hidden / m.heads);
                   }),
                   "Width of a head. auto: model.hidden / model.heads.", "128",
                   {.at_least = 1, .at_most = 256, .also = {"head_size", "d_head", "kv_channels"}}),
          make_key(
              MEMBER(model.ffn), always(),
              "Width inside the feed-forward part. auto: 4 x hidden where it is not gated (gpt2, mlp, phi, "
              "gpt_neox), or 8/3 x hidden rounded up to 64 (llama and the others).",
              "3072",
              {.at_least = 1,
               .at_most = 8 * kMostWidth,
               .also = {"intermediate_size", "ffn_dim", "n_inner", "mlp_dim", "ffn_hidden_size"}}),
          make_key(
              MEMBER(model.vocab), always(),
              "Rows of the embedding. auto: the data's, rounded up to a multiple of 64.", "50304",
              {.at_least = 2, .at_most = 1 << 28, .also = {"vocab_size", "n_vocab", "padded_vocab_size"}}),
          make_key(MEMBER(model.context), always(),
                   "Maximum sequence length of the model. auto: data.seq_len.", "1024",
                   {.at_least = 1,
                    .at_most = 1 << 28,
                    .also = {"n_positions", "max_position_embeddings", "context_length", "n_ctx"}}),
          make_key(MEMBER(model.dropout), always(), "Dropout probability.", "0.1",
                   {.at_least = 0,
                    .at_most = 0.99,
                    .also = {"dropout_rate", "resid_pdrop", "hidden_dropout_prob", "attention_dropout"}}),
          make_key(MEMBER(model.tied), always(), "Tie the embedding and the output head.", "false",
                   {.also = {"tie_word_embeddings", "tie_embeddings", "weight_tying"}}),
          make_key(
              MEMBER(model.activation), always(),
              "The nonlinearity of the feed-forward part, by its name in transformers; where that is gated, "
              "it "
              "is the gate's. auto: the family's own, such as gelu_new (gpt2) or silu (llama). gelu is the "
              "exact one, by erf; gelu_new, gelu_fast, gelu_pytorch_tanh, gelu_python_tanh and gelu_accurate "
              "are its form with tanh.",
              "\"gelu\"",
              {.choices = choice_names("model.activation", {"auto"}),
               .also = {"activation_function", "hidden_act", "act_fn", "nonlinearity"}}),
          make_key(MEMBER(model.attention_bias), of_family(),
                   "The maps to queries, keys and values and the one behind attention have biases.", "true",
                   {.also = {"qkv_bias", "use_bias"}}),
          make_key(MEMBER(model.mlp_bias), of_family(), "The maps of the feed-forward part have biases.",
                   "true"),
          make_key(MEMBER(model.sliding_window), of_family(),
                   "Tokens that a query looks back at, its own among them. 0: all before it.", "4096",
                   {.at_least = 0, .at_most = 1 << 28, .also = {"window_size", "attention_window"}}),
          make_key(MEMBER(model.layer_types),
                   [](const std::string& key) {
                     return all_of({of_family()(key), above("model.sliding_window", 0)});
                   },
                   "Which layers have the window: sliding and full, separated by commas, repeated over all "
                   "layers. "
                   "Empty: "
                   "all have it.",
                   "\"sliding*5,full\"",
                   {.pattern = kLayerTypes,
                    .form = "sliding and full with commas, such as sliding*5,full",
                    .also = {"sliding_window_pattern", "attention_types"}}),
          make_key(MEMBER(model.attn_softcap), of_family(),
                   "Attention scores become this times tanh(score / this). 0: as they are.", "50.0",
                   {.at_least = 0, .at_most = 1e6, .also = {"attn_logit_softcapping", "attention_softcap"}}),
          make_key(MEMBER(model.final_softcap), of_family(),
                   "Logits become this times tanh(logit / this). 0: as they are.", "30.0",
                   {.at_least = 0, .at_most = 1e6, .also = {"final_logit_softcapping", "logit_softcap"}}),
          make_key(MEMBER(model.query_scalar), of_family(),
                   "Attention scores are divided by the square root of this. 0: of model.head_dim.", "256.0",
                   {.at_least = 0, .at_most = 1e6, .also = {"query_pre_attn_scalar", "attention_scale"}}),
          make_key(MEMBER(model.parallel_residual), of_family(),
                   "Attention and the feed-forward part read the same, and what both give is added at once; "
                   "false: one after the other.",
                   "false", {.also = {"use_parallel_residual", "parallel_attn"}}),
          make_key(MEMBER(model.init_std), is_empty("model.from"), "Standard deviation of the first weights.",
                   "0.02", {.at_least = 0, .at_most = 10, .also = {"initializer_range", "init_scale"}}),
          make_key(MEMBER(model.norm_epsilon), always(), "Added to the variance inside each normalization.",
                   "1e-5",
                   {.at_most = 1, .above = 0, .also = {"layer_norm_epsilon", "rms_norm_eps", "norm_eps"}}),
          make_key(MEMBER(model.rope_theta), of_family(), "Base of the rotary frequencies.", "500000.0",
                   {.at_most = 1e12, .above = 0, .also = {"rope_base"}}),
          make_key(MEMBER(model.rope_local_theta),
                   [](const std::string& key) {
                     return all_of({of_family()(key), above("model.sliding_window", 0)});
                   },
                   "The same for layers with a sliding window, whose positions are never stretched.",
                   "10000.0", {.at_most = 1e12, .above = 0, .also = {"rope_local_base_freq"}}),
          make_key(MEMBER(model.partial_rotary), of_family(),
                   "Share of a head's columns that is rotated; the others know no position.", "0.25",
                   {.at_most = 1, .above = 0, .also = {"partial_rotary_factor", "rotary_pct"}}),
          make_key(MEMBER(model.no_rope_every), of_family(),
                   "Each so-many-th layer knows no positions. 0: all do.", "4",
                   {.at_least = 0, .at_most = 4096, .also = {"no_rope_layer_interval"}}),
          make_key(MEMBER(model.rope_scaling), of_family(),
                   "Factor by which rotary positions are stretched to a longer context. 0 is none.", "8.0",
                   {.at_least = 0, .at_most = 1e6, .also = {"rope_factor", "rope_scaling_factor"}}),
          make_key(MEMBER(model.rope_type), stretched(),
                   "How rope_scaling stretches. linear: all alike; llama3 and yarn: the slow rotations, "
                   "which they tell from the fast ones by the two limits below; dynamic: by the sequence's "
                   "length, "
                   "where it is above rope_original_context; longrope: each rotation by a factor of its own.",
                   "\"linear\"", {.choices = {"llama3", "linear", "yarn", "dynamic", "longrope"}}),
          make_key(MEMBER(model.rope_low_freq), stretched({"llama3", "yarn"}),
                   "With rope_scaling, waves longer than rope_original_context / this are stretched fully.",
                   "1.0", {.at_most = 1e6, .above = 0, .also = {"low_freq_factor", "beta_slow"}}),
          make_key(MEMBER(model.rope_high_freq), stretched({"llama3", "yarn"}),
                   "With rope_scaling, waves shorter than rope_original_context / this are left alone.",
                   "4.0", {.at_most = 1e6, .above = 0, .also = {"high_freq_factor", "beta_fast"}}),
          make_key(MEMBER(model.rope_whole_limits), stretched({"yarn"}),
                   "Whether yarn rounds the two rotations that it blends between to integers, outwards. "
                   "Most models do; gpt-oss does not.",
                   "false", {.also = {"truncate", "rope_truncate"}}),
          make_key(MEMBER(model.rope_original_context), stretched({"llama3", "yarn", "dynamic", "longrope"}),
                   "With rope_scaling, the context length before it was stretched.", "8192",
                   {.at_least = 1, .at_most = 1 << 28, .also = {"original_max_position_embeddings"}}),
          make_key(MEMBER(model.rope_attention), stretched({"yarn", "longrope"}),
                   "What yarn and longrope multiply cosines and sines with. 0: as their authors do, 1 + "
                   "ln(rope_scaling) / 10 and sqrt(1 + ln(rope_scaling) / ln(rope_original_context)).",
                   "1.2", {.at_least = 0, .at_most = 100, .also = {"attention_factor", "mscale"}}),
          make_key(
              MEMBER(model.rope_short_factor), stretched({"longrope"}),
              "longrope's factor for each rotation, half of a head's rotated columns, in sequences of up to "
              "rope_original_context tokens.",
              "\"1.0,1.05,1.2,1.4\"",
              {.pattern = kNumbers, .form = "numbers with commas", .also = {"short_factor"}}),
          make_key(MEMBER(model.rope_long_factor), stretched({"longrope"}), "The same in longer sequences.",
                   "\"1.0,1.5,4.2,8.0\"",
                   {.pattern = kNumbers, .form = "numbers with commas", .also = {"long_factor"}}),
          make_key(
              MEMBER(model.from), always(),
              "A Hugging Face folder (config.json and weights) to start from. Empty: random initial weights. "
              "Or a model of your own: a torch module saved as TorchScript (net.pt), which contains code "
              "that "
              "runs, so use only files you trust.",
              "\"checkpoints/llama-3.2-1b\"",
              {.also = {"pretrained", "init_from", "checkpoint", "model_path", "model_name",
                        "model_name_or_path", "model_id", "base_model"},
               .names = Key::Names::input}),
      });
}

void add_optim(std::vector<Key>& keys) {
  keys.insert(
      keys.end(),
      {
          make_key(MEMBER(optim.name), always(), "The optimizer.", "\"lion\"",
                   {.choices = choice_names("optim.name"), .also = {"optimizer", "type"}}),
          make_key(MEMBER(optim.lr), always(), "Learning rate after the warm-up.", "3e-4",
                   {.at_least = 0, .at_most = 1000, .also = {"learning_rate", "eta", "max_lr", "peak_lr"}}),
          make_key(MEMBER(optim.schedule), always(), "How the learning rate decays after the warm-up.",
                   "\"wsd\"",
                   {.choices = choice_names("optim.schedule"),
                    .also = {"lr_schedule", "scheduler", "lr_scheduler", "lr_scheduler_type",
                             "lr_decay_style", "decay"}}),
          make_key(MEMBER(optim.warmup), always(), "Steps over which the learning rate rises from zero.",
                   "200",
                   {.at_least = 0,
                    .at_most = kMostSteps,
                    .also = {"warmup_steps", "warmup_iters", "num_warmup_steps"}}),
          make_key(MEMBER(optim.min_lr), read_by("optim.schedule"),
                   "Final learning rate, as a fraction of optim.lr.", "0.1",
                   {.at_least = 0, .at_most = 1, .also = {"min_lr_ratio", "final_lr", "lr_end"}}),
          make_key(MEMBER(optim.decay_fraction), read_by("optim.schedule"),
                   "wsd: fraction of the run, at its end, in which the learning rate decays.", "0.2",
                   {.at_least = 0, .at_most = 1, .also = {"cooldown", "cooldown_fraction"}}),
          make_key(
              MEMBER(optim.decay_steps), read_by("optim.schedule"),
              "The step at which the schedule reaches optim.min_lr and stays there; set it to train longer "
              "without stretching the schedule. auto: run.steps.",
              "10000",
              {.at_least = 1, .at_most = kMostSteps, .also = {"lr_decay_iters", "lr_decay_steps", "t_max"}}),
          make_key(MEMBER(optim.beta1), read_by("optim.name"), "adamw, lion: decay rate of the first moment.",
                   "0.9", {.at_least = 0, .at_most = 0.99999, .also = {"adam_beta1"}}),
          make_key(MEMBER(optim.beta2), read_by("optim.name"),
                   "adamw: decay rate of the second moment; lion: of its only moment.", "0.95",
                   {.at_least = 0, .at_most = 0.9999999, .also = {"adam_beta2"}}),
          make_key(MEMBER(optim.epsilon), read_by("optim.name"),
                   "adamw: added to the square root of the second moment.", "1e-8",
                   {.at_most = 1, .above = 0, .also = {"eps", "adam_epsilon"}}),
          make_key(MEMBER(optim.momentum), read_by("optim.name"),
                   "sgd, muon: share of the last update that is kept; 0.95 is usual for muon.", "0.9",
                   {.at_least = 0, .at_most = 0.99999}),
          make_key(MEMBER(optim.weight_decay), always(),
                   "Decoupled weight decay of matrices and embeddings; not applied to norms and biases.",
                   "0.1", {.at_least = 0, .at_most = 10, .also = {"wd", "l2"}}),
          make_key(MEMBER(optim.decay_all), above("optim.weight_decay", 0),
                   "Apply weight decay to norms and biases too.", "true"),
          make_key(
              MEMBER(optim.clip), always(), "Clip gradients to this global norm. 0: no clipping.", "1.0",
              {.at_least = 0,
               .at_most = 1e9,
               .also = {"grad_clip", "max_grad_norm", "gradient_clip", "clip_grad", "gradient_clipping"}}),
          make_key(MEMBER(optim.moments), always(),
                   "Number format of the optimizer state. bf16 halves it, with stochastic rounding of the "
                   "second moment.",
                   "\"bf16\"", {.choices = {"fp32", "bf16"}, .also = {"state_dtype", "optim_dtype"}}),
          make_key(MEMBER(optim.offload), always(),
                   "Keep the optimizer state in host memory: less GPU memory, slower steps, same bits.",
                   "true", {.also = {"cpu_offload", "offload_optimizer"}}),
          make_key(MEMBER(optim.lr_scale), always(),
                   "Scale optim.lr with batch.global / optim.base_batch: not at all, linearly, or with its "
                   "square root.",
                   "\"sqrt\"", {.choices = {"none", "linear", "sqrt"}, .also = {"lr_scaling"}}),
          make_key(MEMBER(optim.base_batch), is("optim.lr_scale", {"linear", "sqrt"}),
                   "Samples per step for which optim.lr was tuned; used by optim.lr_scale.", "256",
                   {.at_least = 1, .at_most = 1e9}),
          make_key(MEMBER(optim.groups), always(),
                   "Parameter groups: a pattern of names, then what is their own, as lr_scale (times "
                   "optim.lr), weight_decay, kind (an optimizer) or frozen. In a file also as tables, "
                   "[[optim.groups]] with match = \"*.bias\". Where several match, the last word on each "
                   "counts.",
                   "[\"*.bias weight_decay=0\", \"wte.* lr_scale=0.1\"]",
                   {.also = {"param_groups", "parameter_groups"}, .list = true, .tables = true}),
          make_key(MEMBER(optim.layer_lr_decay), always(),
                   "Layer-wise learning rates: the rate of each block is that of the block behind it times "
                   "this; the head has optim.lr. 1: all alike.",
                   "0.9", {.at_most = 1, .above = 0, .also = {"layer_decay", "llrd", "layerwise_lr_decay"}}),
      });
}

void add_tune(std::vector<Key>& keys) {
  keys.insert(
      keys.end(),
      {
          make_key(MEMBER(tune.freeze), always(),
                   "Parameters that are not trained: patterns of their names, as `lockstep explain "
                   "parameters` lists them. * stands for anything. They have no gradient and no optimizer "
                   "state.",
                   "[\"transformer.wte.*\", \"transformer.h.0.*\"]",
                   {.also = {"frozen", "freeze_layers", "requires_grad"}, .list = true}),
          make_key(MEMBER(tune.train), always(),
                   "Only parameters that match one of these patterns are trained, all others are frozen; "
                   "tune.freeze is taken from them. Empty: all are trained. With tune.method = lora: trained "
                   "beside the adapters.",
                   "[\"lm_head.*\"]",
                   {.also = {"trainable", "trainable_parameters", "modules_to_save"}, .list = true}),
          make_key(
              MEMBER(tune.method), always(),
              "What is trained. full: the weights. lora: a small product added to each linear map of the "
              "layers; the weights themselves stay as they are.",
              "\"lora\"", {.choices = {"full", "lora"}, .also = {"peft_type", "finetuning_type"}}),
          make_key(MEMBER(tune.rank), is("tune.method", {"lora"}),
                   "lora: rank of the product that is added to a weight. More learns more and takes more "
                   "memory.",
                   "16", {.at_least = 1, .at_most = 65536, .also = {"r", "lora_r", "lora_rank"}}),
          make_key(MEMBER(tune.alpha), is("tune.method", {"lora"}),
                   "lora: the product is multiplied by alpha / rank (tune.scaling).", "32.0",
                   {.at_most = 1e6, .above = 0, .also = {"lora_alpha"}}),
          make_key(MEMBER(tune.dropout), is("tune.method", {"lora"}),
                   "lora: fraction of the product's inputs that is dropped in training.", "0.05",
                   {.at_least = 0, .at_most = 0.99, .also = {"lora_dropout"}}),
          make_key(MEMBER(tune.targets), is("tune.method", {"lora"}),
                   "lora: linear maps of the layers that get a product: all, or names as transformers has "
                   "them, whole or their last parts, with * for anything.",
                   "[\"q_proj\", \"v_proj\"]",
                   {.also = {"target_modules", "lora_target_modules", "lora_target"}, .list = true}),
          make_key(MEMBER(tune.scaling), is("tune.method", {"lora"}),
                   "lora: what alpha is divided by: the rank, or its square root (rsLoRA), which keeps large "
                   "ranks learning.",
                   "\"sqrt\"", {.choices = {"rank", "sqrt"}, .also = {"use_rslora"}}),
          make_key(
              MEMBER(tune.adapter), is("tune.method", {"lora"}),
              "lora: folder of an adapter to start from: PEFT's adapter_config.json and "
              "adapter_model.safetensors, or a checkpoint of a lora run. Its rank, alpha and targets are "
              "taken over.",
              "\"adapter\"", {.also = {"adapter_name_or_path", "lora_path"}, .names = Key::Names::input}),
          make_key(
              MEMBER(tune.base), is("tune.method", {"lora"}),
              "lora: how the frozen weights of the layers' linear maps are kept. compute: in the type of "
              "products (precision.compute). nf4: in 4.5 bits each, as QLoRA does. fp8: in 8.5 bits. "
              "Products read them in precision.compute, dequantized where they are needed.",
              "\"nf4\"",
              {.choices = {"compute", "nf4", "fp8"},
               .also = {"load_in_4bit", "load_in_8bit", "bnb_4bit_quant_type", "quantization_bit"}}),
          make_key(MEMBER(tune.loss), always(),
                   "What training lowers. cross_entropy: of the next token. dpo: direct preference "
                   "optimization, on pairs of a chosen and a rejected answer (data.kind = preference); the "
                   "reference is the model that the run starts with.",
                   "\"dpo\"", {.choices = {"cross_entropy", "dpo"}, .also = {"loss_type", "pref_loss"}}),
          make_key(MEMBER(tune.beta), is("tune.loss", {"dpo"}),
                   "dpo: how much the gain of a pair over the reference counts. Smaller lets the model move "
                   "farther from the reference.",
                   "0.1", {.at_most = 1e6, .above = 0, .also = {"dpo_beta", "pref_beta"}}),
          make_key(MEMBER(tune.label_smoothing), is("tune.loss", {"dpo"}),
                   "dpo: share of the pairs that are expected to be labelled the wrong way round "
                   "(conservative DPO).",
                   "0.1", {.at_least = 0, .at_most = 0.49, .also = {"dpo_label_smoothing"}}),
      });
}

void add_precision(std::vector<Key>& keys) {
  keys.insert(
      keys.end(),
      {
          make_key(MEMBER(precision.compute), always(),
                   "Number format of forward and backward; master weights are always fp32. auto: bf16 if the "
                   "device is fast at it, otherwise fp16 with a loss scale, fp32 on the CPU. fp8: bf16, with "
                   "fp8 products in the layers and, with fp8_head, in the output head.",
                   "\"bf16\"",
                   {.choices = {"auto", "fp32", "bf16", "fp16", "fp8"},
                    .also = {"dtype", "torch_dtype", "precision", "mixed_precision", "amp"}}),
          make_key(MEMBER(precision.tf32), all_of({on_a_gpu(), is("precision.compute", {"fp32"})}),
                   "Let fp32 matrix products on GPUs round their inputs to TF32.", "false",
                   {.also = {"allow_tf32"}}),
          make_key(MEMBER(precision.loss_scale), is("precision.compute", {"fp16"}),
                   "fp16: initial loss scale.", "65536.0",
                   {.at_least = 1, .at_most = 1e30, .also = {"init_scale"}}),
          make_key(MEMBER(precision.growth_interval), is("precision.compute", {"fp16"}),
                   "fp16: steps without overflow after which the loss scale doubles.", "2000",
                   {.at_least = 1, .at_most = kMostSteps}),
          make_key(MEMBER(precision.fp8_scaling), is("precision.compute", {"fp8"}),
                   "fp8: which values share a scale, computed from their current values: a whole matrix, a "
                   "row, or 128 consecutive elements (128 x 128 for weights).",
                   "\"row\"", {.choices = {"tensor", "row", "block"}, .also = {"fp8_recipe"}}),
          make_key(MEMBER(precision.fp8_gradients), is("precision.compute", {"fp8"}),
                   "fp8: format of the gradients read by products; e5m2 has more range, e4m3 more precision. "
                   "Activations and weights are e4m3.",
                   "\"e4m3\"", {.choices = {"e5m2", "e4m3"}, .also = {"fp8_format"}}),
          make_key(MEMBER(precision.fp8_fast_sums), is("precision.compute", {"fp8"}),
                   "fp8: products that may accumulate in the tensor cores, with fewer bits and faster: all, "
                   "those of the forward pass, or none.",
                   "\"forward\"", {.choices = {"all", "forward", "none"}, .also = {"use_fast_accum"}}),
          make_key(MEMBER(precision.fp8_skip_first), is("precision.compute", {"fp8"}),
                   "fp8: number of first layers that stay bf16.", "1", {.at_least = 0, .at_most = 1e6}),
          make_key(MEMBER(precision.fp8_skip_last), is("precision.compute", {"fp8"}),
                   "fp8: number of last layers that stay bf16.", "1", {.at_least = 0, .at_most = 1e6}),
          make_key(MEMBER(precision.fp8_head), is("precision.compute", {"fp8"}),
                   "fp8: use fp8 in the output head too: faster, but hurts the loss.", "true"),
      });
}

}  // namespace lockstep::recipe
