// Recipe keys of ranks and memory.
#include "lockstep/recipe/recipe_rows.h"

namespace lockstep::recipe {

void add_parallel_and_memory(std::vector<Key>& keys) {
  keys.insert(
      keys.end(),
      {
          make_key(
              MEMBER(parallel.data), always(),
              "Data-parallel ranks. auto: as many as are started. Only a check: ranks come from --nproc and "
              "--nnodes.",
              "4", {.at_least = 1, .at_most = 1 << 20, .also = {"dp", "data_parallel", "dp_size", "ddp"}}),
          make_key(
              MEMBER(parallel.zero), on_several_ranks(),
              "What data-parallel ranks share out instead of copying: nothing (0, none), optimizer state (1, "
              "optimizer), gradients too (2, gradient), weights too (3, full).",
              "\"3\"",
              {.choices = {"0", "1", "2", "3", "none", "optimizer", "gradient", "full"},
               .also = {"zero_stage", "stage", "fsdp", "sharding"}}),
          make_key(
              MEMBER(parallel.shard), always(),
              "With parallel.zero: ranks that share one copy of the model. Fewer than the data ranks is "
              "HSDP: several "
              "copies, each shared out. auto: all data ranks.",
              "8",
              {.at_least = 1, .at_most = 1 << 20, .also = {"shard_size", "hsdp", "sharding_group_size"}}),
          make_key(
              MEMBER(parallel.tensor), always(),
              "Ranks that share every matrix product of a layer. They talk several times a layer: keep them "
              "inside one node.",
              "2",
              {.at_least = 1,
               .at_most = 1 << 20,
               .also = {"tp", "tensor_parallel", "tp_size", "model_parallel"}}),
          make_key(
              MEMBER(parallel.sequence), above("parallel.tensor", 1),
              "With parallel.tensor: norms and residuals are split over tokens among the tensor ranks, which "
              "saves memory for the same traffic.",
              "true", {.also = {"sp", "sequence_parallel"}}),
          make_key(MEMBER(parallel.context), always(), "Ranks that share every sequence, for long ones.", "2",
                   {.at_least = 1,
                    .at_most = 1 << 20,
                    .also = {"cp", "context_parallel", "cp_size", "ulysses", "ring_attention"}}),
          make_key(MEMBER(parallel.context_form), above("parallel.context", 1),
                   "How context ranks attend to each other's tokens: keys and values go round in a ring, or "
                   "tokens "
                   "are exchanged for heads (all-to-all).",
                   "\"heads\"", {.choices = {"ring", "heads"}, .also = {"cp_comm_type"}}),
          make_key(MEMBER(parallel.pipeline), always(),
                   "Ranks that share the blocks: each holds some and hands activations to the next.", "2",
                   {.at_least = 1, .at_most = 1 << 20, .also = {"pp", "pipeline_parallel", "pp_size"}}),
          make_key(MEMBER(parallel.schedule), above("parallel.pipeline", 1),
                   "In which order pipeline stages work on slices.", "\"zero-bubble\"",
                   {.choices = {"gpipe", "1f1b", "interleaved", "zero-bubble"},
                    .also = {"pipeline_schedule", "pp_schedule"}}),
          make_key(MEMBER(parallel.chunks),
                   all_of({above("parallel.pipeline", 1), is("parallel.schedule", {"interleaved"})}),
                   "With parallel.schedule = interleaved: pieces of the model that a stage holds.", "2",
                   {.at_least = 1,
                    .at_most = 1 << 16,
                    .also = {"virtual_stages", "num_virtual_stages", "virtual_pipeline"}}),
          make_key(MEMBER(parallel.stages), above("parallel.pipeline", 1),
                   "Layers of each pipeline stage by hand, as 6,8,8,6. Empty: balanced by cost.",
                   "\"6,8,8,6\"",
                   {.pattern = "|[0-9]+(,[0-9]+)*",
                    .form = "numbers of layers with commas",
                    .also = {"device_map", "placement"},
                    .list = true}),
          make_key(
              "parallel.auto", Key::Type::boolean, [](Recipe& r) { return &r.parallel.automatic; }, always(),
              "Choose zero, tensor, context, pipeline and recomputation by memory and a forecast of the step "
              "time, and say why.",
              "true", {.also = {"auto_parallel"}}),
          make_key(MEMBER(parallel.engine), on_several_ranks(),
                   "What carries collectives. auto: nccl on GPUs; on CPUs shm when every rank is on one "
                   "host, else gloo.",
                   "\"gloo\"",
                   {.choices = choice_names("parallel.engine", {"auto"}),
                    .also = {"backend", "dist_backend", "ddp_backend"}}),
          make_key(MEMBER(parallel.wire), on_several_ranks(),
                   "Type of gradients between ranks. bf16 halves the traffic and needs run.exact = false.",
                   "\"bf16\"", {.choices = {"fp32", "bf16"}, .also = {"reduce_dtype", "grad_dtype"}}),
          make_key(MEMBER(parallel.bucket_mib), on_several_ranks(),
                   "Gradients are reduced in buckets of blocks of at least this size, while the backward "
                   "pass goes on.",
                   "25.0", {.at_least = 0, .at_most = 1e6, .also = {"bucket_cap_mb", "bucket_size"}}),
          make_key(MEMBER(parallel.timeout), on_several_ranks(),
                   "Seconds after which a collective that does not end is an error. At its default, at least "
                   "twice run.hang_timeout, whose verdict says more.",
                   "1800", {.at_least = 1, .at_most = 1e7, .also = {"ddp_timeout", "dist_timeout"}}),
          make_key(
              MEMBER(memory.recompute), always(),
              "What backward computes again instead of keeping: nothing, cheap things (norms, SwiGLU), every "
              "block, each K-th block (every-K), or segments by name (attention,up). auto: cheap on a GPU "
              "where "
              "that should cost less than 1 % of a step, else nothing.",
              "\"full\"",
              {.pattern = "auto|none|cheap|full|every-[1-9][0-9]{0,4}|[a-z][a-z_]*(,[a-z][a-z_]*)*",
               .form = "auto, none, cheap, full, every-K or names of segments with commas",
               .also = {"checkpointing", "activation_checkpointing", "gradient_checkpointing", "remat"},
               .list = true}),
          make_key(MEMBER(memory.logits_chunk), always(),
                   "Rows of logits held at a time. auto: about 64 MiB on CPU, 1 GiB on a GPU.", "4096",
                   {.at_least = 1, .at_most = 1 << 28, .also = {"loss_chunk", "ce_chunk"}}),
          make_key(MEMBER(memory.limit_gib), always(),
                   "Pretend that the device has only this much memory. 0: all it has.", "40.0",
                   {.at_least = 0, .at_most = 1e6, .also = {"max_memory", "limit"}}),
      });
}

}  // namespace lockstep::recipe
