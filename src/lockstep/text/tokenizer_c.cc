#include "lockstep/text/tokenizer_c.h"

#include <cstdlib>
#include <cstring>
#include <exception>
#include <mutex>

#include "lockstep/text/tokenizer.h"

struct lockstep_tokenizer {
  std::unique_ptr<lockstep::text::Tokenizer> tokenizer;
  std::unique_ptr<lockstep::text::Encoder> encoder;
  std::mutex mutex;
};

namespace {

char* copied(std::string_view text) {
  auto* memory = static_cast<char*>(std::malloc(text.size() + 1));
  if (memory == nullptr) return nullptr;
  std::memcpy(memory, text.data(), text.size());
  memory[text.size()] = 0;
  return memory;
}

// Runs `body`; what it throws becomes `failed` and a sentence.
template <class Result, class Body>
Result guarded(Result failed, char** error, const Body& body) {
  try {
    return body();
  } catch (const std::exception& thrown) {
    if (error != nullptr) *error = copied(thrown.what());
  }
  return failed;
}

}  // namespace

lockstep_tokenizer* lockstep_tokenizer_open(const char* path, char** error) {
  return guarded<lockstep_tokenizer*>(nullptr, error, [&] {
    auto made = std::make_unique<lockstep_tokenizer>();
    made->tokenizer = lockstep::text::open_tokenizer(path);
    made->encoder = made->tokenizer->encoder();
    return made.release();
  });
}

void lockstep_tokenizer_close(lockstep_tokenizer* tokenizer) { delete tokenizer; }

int64_t lockstep_tokenizer_vocab(const lockstep_tokenizer* tokenizer) {
  return tokenizer->tokenizer->vocab();
}

int32_t lockstep_tokenizer_special(const lockstep_tokenizer* tokenizer, int which) {
  const lockstep::text::Tokenizer& it = *tokenizer->tokenizer;
  const auto found = which == 0 ? it.begin_token() : which == 1 ? it.end_token() : it.pad_token();
  return found.value_or(-1);
}

int32_t lockstep_tokenizer_id(const lockstep_tokenizer* tokenizer, const char* token, int64_t bytes) {
  return tokenizer->tokenizer->id_of({token, static_cast<size_t>(bytes)}).value_or(-1);
}

char* lockstep_tokenizer_describe(const lockstep_tokenizer* tokenizer) {
  return copied(tokenizer->tokenizer->describe());
}

int64_t lockstep_tokenizer_encode(lockstep_tokenizer* tokenizer, const char* text, int64_t bytes,
                                  int add_special, int parse_special, int32_t** ids, char** error) {
  return guarded<int64_t>(-1, error, [&]() -> int64_t {
    std::vector<int32_t> found;
    {
      const std::scoped_lock lock(tokenizer->mutex);
      tokenizer->encoder->encode({text, static_cast<size_t>(bytes)}, found,
                                 {.add_special = add_special != 0, .parse_special = parse_special != 0});
    }
    *ids = static_cast<int32_t*>(std::malloc(found.size() * sizeof(int32_t) + 1));
    if (*ids == nullptr) throw std::bad_alloc();
    std::memcpy(*ids, found.data(), found.size() * sizeof(int32_t));
    return static_cast<int64_t>(found.size());
  });
}

int64_t lockstep_tokenizer_decode(const lockstep_tokenizer* tokenizer, const int32_t* ids, int64_t count,
                                  int skip_special, char** text, char** error) {
  return guarded<int64_t>(-1, error, [&]() -> int64_t {
    const std::string found =
        tokenizer->tokenizer->decode({ids, static_cast<size_t>(count)}, skip_special != 0);
    *text = copied(found);
    if (*text == nullptr) throw std::bad_alloc();
    return static_cast<int64_t>(found.size());
  });
}

void lockstep_free(void* memory) { std::free(memory); }
