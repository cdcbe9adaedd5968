// The part of NCCL's C interface that we use, as function pointers out of libnccl.so.2.
//
// Opened when the first group is made, never linked: a machine without a GPU has no such library. Declared
// here by hand, since its header needs CUDA's; enumerators are ints in NCCL's ABI and a cudaStream_t is a
// pointer.
#pragma once

#include <climits>
#include <cstddef>

namespace lockstep::comm {

using NcclComm = struct ncclComm*;

enum NcclResult : int { kNcclSuccess = 0, kNcclInProgress = 7 };
enum NcclType : int {
  kNcclUint8 = 1,
  kNcclInt32 = 2,
  kNcclInt64 = 4,
  kNcclFloat16 = 6,
  kNcclFloat32 = 7,
  kNcclFloat64 = 8,
  kNcclBfloat16 = 9,
};
constexpr int kNcclSum = 0;

struct NcclUniqueId {
  char bytes[128];
};

// ncclConfig_t as of 2.17; newer libraries see by `size` and `version` that the rest is left to them.
struct NcclConfig {
  size_t size = sizeof(NcclConfig);
  unsigned magic = 0xcafebeef;
  unsigned version = 21700;
  int blocking = 1;
  int cga_cluster_size = INT_MIN, min_ctas = INT_MIN, max_ctas = INT_MIN;
  const char* net_name = nullptr;
  int split_share = INT_MIN;
};

struct NcclApi {
  NcclResult (*GetUniqueId)(NcclUniqueId* id);
  NcclResult (*CommInitRankConfig)(NcclComm* comm, int size, NcclUniqueId id, int rank, NcclConfig* config);
  NcclResult (*CommDestroy)(NcclComm comm);
  NcclResult (*CommAbort)(NcclComm comm);
  NcclResult (*CommGetAsyncError)(NcclComm comm, NcclResult* error);
  const char* (*GetErrorString)(NcclResult result);
  const char* (*GetLastError)(NcclComm comm);
  NcclResult (*AllReduce)(const void*, void*, size_t count, NcclType, int op, NcclComm, void* stream);
  NcclResult (*Reduce)(const void*, void*, size_t count, NcclType, int op, int root, NcclComm, void* stream);
  NcclResult (*ReduceScatter)(const void*, void*, size_t each, NcclType, int op, NcclComm, void* stream);
  NcclResult (*AllGather)(const void*, void*, size_t each, NcclType, NcclComm, void* stream);
  NcclResult (*Broadcast)(const void*, void*, size_t count, NcclType, int root, NcclComm, void* stream);
  NcclResult (*Send)(const void*, size_t count, NcclType, int peer, NcclComm, void* stream);
  NcclResult (*Recv)(void*, size_t count, NcclType, int peer, NcclComm, void* stream);
  NcclResult (*GroupStart)();
  NcclResult (*GroupEnd)();
};

// ConfigError 527: where it was looked for and what the loader said.
const NcclApi& nccl_api();

}  // namespace lockstep::comm
