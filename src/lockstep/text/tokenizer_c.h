/* A tokenizer for programs in other languages: the functions of tokenizer.h with a plain C interface, which
 * Python's ctypes calls (python/lockstep/tokenizer.py). Numbers and memory only; nothing is thrown across it.
 *
 *     char* error = NULL;
 *     lockstep_tokenizer* t = lockstep_tokenizer_open("llama3/", &error);    // NULL: error says why
 *     int32_t* ids; int64_t count = lockstep_tokenizer_encode(t, "Hello", 5, 1, 1, &ids, &error);
 *     lockstep_free(ids); lockstep_tokenizer_close(t);
 *
 * What is handed out belongs to the caller: lockstep_free(). A tokenizer may be used by several threads, one
 * after the other: it has one encoder, behind a lock. */
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct lockstep_tokenizer lockstep_tokenizer;

lockstep_tokenizer* lockstep_tokenizer_open(const char* path, char** error);
void lockstep_tokenizer_close(lockstep_tokenizer* tokenizer);
int64_t lockstep_tokenizer_vocab(const lockstep_tokenizer* tokenizer);
/* 0: the token that begins a text, 1: that ends one, 2: that pads; -1: there is none. */
int32_t lockstep_tokenizer_special(const lockstep_tokenizer* tokenizer, int which);
int32_t lockstep_tokenizer_id(const lockstep_tokenizer* tokenizer, const char* token,
                              int64_t bytes); /* -1: none */
char* lockstep_tokenizer_describe(const lockstep_tokenizer* tokenizer);
/* The number of ids, or -1 and an error. */
int64_t lockstep_tokenizer_encode(lockstep_tokenizer* tokenizer, const char* text, int64_t bytes,
                                  int add_special, int parse_special, int32_t** ids, char** error);
/* The number of bytes, or -1 and an error. */
int64_t lockstep_tokenizer_decode(const lockstep_tokenizer* tokenizer, const int32_t* ids, int64_t count,
                                  int skip_special, char** text, char** error);
void lockstep_free(void* memory);

#ifdef __cplusplus
}
#endif
