/* What liblockstep_flash.so exports: FlashAttention-4's kernels for Hopper, which set-up compiles on this
 * machine (tools/flash). C, because the table behind it is written and compiled by that script. */
#ifndef LOCKSTEP_KERNELS_FLASH_ABI_H
#define LOCKSTEP_KERNELS_FLASH_ABI_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LOCKSTEP_FLASH_ABI 3

/* What a query sees: every key; those up to its own; the last few of these. */
enum { LOCKSTEP_FLASH_FULL = 0, LOCKSTEP_FLASH_CAUSAL = 1, LOCKSTEP_FLASH_WINDOW = 2 };

typedef struct {
  const char* type; /* "bf16" or "fp16" */
  int32_t head_dim;
  int32_t group; /* query heads a key head */
  int32_t mask;
  int32_t capped; /* a soft cap bends the scores */
  int32_t packed; /* documents of any length, one behind the other */
  int32_t backward;
  /* Scratch of the backward pass: tokens are rounded up to tiles, and a head's columns to width. */
  int32_t q_tile, kv_tile, width;
  /* As the compiler wrote them: each takes an array of pointers to its arguments, the last one to an int32_t
   * that becomes a cudaError_t. init: cudaLibrary_t**. load: cudaLibrary_t**, int32_t device. */
  void (*init)(void** arguments);
  void (*load)(void** arguments);
  void (*run)(void** arguments, int32_t count);
} LockstepFlashKernel;

typedef struct {
  int32_t abi;
  const char* version; /* of FlashAttention: "4.0.0b36" */
  int32_t count;
  const LockstepFlashKernel* kernels;
} LockstepFlashTable;

const LockstepFlashTable* lockstep_flash_table(void);

#ifdef __cplusplus
}
#endif
#endif
