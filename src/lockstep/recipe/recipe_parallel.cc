// Recipe keys of ranks and memory.
#include "lockstep/recipe/recipe_rows.h"

namespace lockstep::recipe {

void add_parallel_and_memory(std::vector<Key>& keys) {
  keys.insert(
      keys.end(),
      {
          make_key(MEMBER(parallel.data), always(),
                   "Data-parallel ranks. auto: as many as were started. Only a check: the number of ranks "
                   "comes from --nproc and --nnodes.",
                   "4",
                   {.at_least = 1, .at_most = 1 << 20, .also = {"dp", "data_parallel", "dp_size", "ddp"}}),
          make_key(MEMBER(parallel.zero), on_several_ranks(),
                   "ZeRO stage, what data-parallel ranks shard: nothing (0, none), optimizer state (1, "
                   "optimizer), gradients too (2, gradient), weights too (3, full).",
                   "\"3\"",
                   {.choices = {"0", "1", "2", "3", "none", "optimizer", "gradient", "full"},
                    .also = {"zero_stage", "stage", "fsdp", "sharding"}}),
          make_key(
              MEMBER(parallel.shard), always(),
              "With parallel.zero: ranks that share one replica of the model. Fewer than the data ranks is "
              "HSDP: several replicas, each sharded. auto: all data ranks.",
              "8",
              {.at_least = 1, .at_most = 1 << 20, .also = {"shard_size", "hsdp", "sharding_group_size"}}),
          make_key(
              MEMBER(parallel.tensor), always(),
              "Tensor-parallel ranks, which split every matrix product of a layer. They communicate "
              "several times per layer: keep them inside one node.",
              "2",
              {.at_least = 1,
               .at_most = 1 << 20,
               .also = {"tp", "tensor_parallel", "tp_size", "tensor_model_parallel_size", "model_parallel"}}),
          make_key(MEMBER(parallel.sequence), above("parallel.tensor", 1),
                   "With parallel.tensor: sequence parallelism, norms and residuals are split by tokens, "
                   "which saves memory at the same traffic.",
                   "true", {.also = {"sp", "sequence_parallel"}}),
          make_key(MEMBER(parallel.context), always(),
                   "Context-parallel ranks, which split every sequence, for long ones.", "2",
                   {.at_least = 1,
                    .at_most = 1 << 20,
                    .also = {"cp", "context_parallel", "cp_size", "ulysses", "ring_attention"}}),
          make_key(MEMBER(parallel.context_form), above("parallel.context", 1),
                   "How context ranks attend to each other's tokens: ring attention, or exchanging tokens "
                   "for heads (all-to-all, Ulysses).",
                   "\"heads\"", {.choices = {"ring", "heads"}, .also = {"cp_comm_type"}}),
          make_key(MEMBER(parallel.pipeline), always(),
                   "Pipeline stages: each rank holds some of the blocks and sends activations to the next.",
                   "2",
                   {.at_least = 1,
                    .at_most = 1 << 20,
                    .also = {"pp", "pipeline_parallel", "pp_size", "pipeline_model_parallel_size"}}),
          make_key(MEMBER(parallel.schedule), above("parallel.pipeline", 1),
                   "The order in which pipeline stages process slices.", "\"zero-bubble\"",
                   {.choices = {"gpipe", "1f1b", "interleaved", "zero-bubble"},
                    .also = {"pipeline_schedule", "pp_schedule"}}),
          make_key(MEMBER(parallel.chunks),
                   all_of({above("parallel.pipeline", 1), is("parallel.schedule", {"interleaved"})}),
                   "With parallel.schedule = interleaved: chunks of the model per stage (virtual stages).",
                   "2",
                   {.at_least = 1,
                    .at_most = 1 << 16,
                    .also = {"virtual_stages", "num_virtual_stages", "virtual_pipeline"}}),
          make_key(MEMBER(parallel.stages), above("parallel.pipeline", 1),
                   "Layers of each pipeline stage, set by hand, such as 6,8,8,6. Empty: balanced by cost.",
                   "\"6,8,8,6\"",
                   {.pattern = "|[0-9]+(,[0-9]+)*",
                    .form = "comma-separated numbers of layers",
                    .also = {"placement"},
                    .list = true}),
          make_key("parallel.auto", Key::Type::boolean, [](Recipe& r) { return &r.parallel.automatic; },
                   always(),
                   "Choose zero, tensor, context, pipeline and recomputation by memory and an estimate of "
                   "the step time, and report why.",
                   "true", {.also = {"auto_parallel"}}),
          make_key(MEMBER(parallel.engine), on_several_ranks(),
                   "Backend for collectives. auto: nccl on GPUs; on CPUs shm if all ranks are on one host, "
                   "otherwise gloo.",
                   "\"gloo\"",
                   {.choices = choice_names("parallel.engine", {"auto"}),
                    .also = {"backend", "dist_backend", "ddp_backend"}}),
          make_key(MEMBER(parallel.wire), on_several_ranks(),
                   "Number format of gradients sent between ranks. bf16 halves the traffic and needs "
                   "run.exact = false.",
                   "\"bf16\"", {.choices = {"fp32", "bf16"}, .also = {"reduce_dtype", "grad_dtype"}}),
          make_key(MEMBER(parallel.bucket_mib), on_several_ranks(),
                   "Minimum size of the gradient buckets that are reduced during the backward pass.", "25.0",
                   {.at_least = 0, .at_most = 1e6, .also = {"bucket_cap_mb", "bucket_size"}}),
          make_key(MEMBER(parallel.timeout), on_several_ranks(),
                   "Seconds after which an unfinished collective is an error. By default at least twice "
                   "run.hang_timeout, whose diagnosis says more.",
                   "1800", {.at_least = 1, .at_most = 1e7, .also = {"ddp_timeout", "dist_timeout"}}),
          make_key(
              MEMBER(memory.recompute), always(),
              "What backward recomputes instead of keeping (activation checkpointing): nothing, cheap things "
              "(norms, SwiGLU), every block, every K-th block (every-K), or segments by name (attention,up). "
              "auto: cheap on a GPU if it is expected to cost less than 1 % of a step, otherwise nothing.",
              "\"full\"",
              {.pattern = "auto|none|cheap|full|every-[1-9][0-9]{0,4}|[a-z][a-z_]*(,[a-z][a-z_]*)*",
               .form = "auto, none, cheap, full, every-K or comma-separated names of segments",
               .also = {"checkpointing", "activation_checkpointing", "gradient_checkpointing", "remat"},
               .list = true}),
          make_key(MEMBER(memory.logits_chunk), always(),
                   "Rows of logits computed at a time. auto: about 64 MiB on a CPU, 1 GiB on a GPU.", "4096",
                   {.at_least = 1, .at_most = 1 << 28, .also = {"loss_chunk", "ce_chunk"}}),
          make_key(MEMBER(memory.limit_gib), always(),
                   "Pretend the device has only this much memory. 0: all of it.", "40.0",
                   {.at_least = 0, .at_most = 1e6, .also = {"max_memory", "limit"}}),
      });
}

}  // namespace lockstep::recipe
