// Learns a byte-level BPE from text, with the merges that the BpeTrainer of `tokenizers` finds in the same
// text.
//
//     BpeTrainer trainer({.vocab_size = 32000, .special_tokens = {"<|endoftext|>"}});
//     for (line of the corpus) trainer.add(line);
//     save_tokenizer(trainer.train(), "mine/");
//
// Text is cut by GPT-2's pattern, and the words are counted; then the most frequent pair becomes a token, of
// equals the one with the smaller ids, until there are enough. Memory is for different words, not for text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace lockstep::text {

struct BpeTrainerOptions {
  int64_t vocab_size = 32000;  // tokens, special ones and the 256 of bytes among them
  std::vector<std::string> special_tokens = {};
  int64_t min_frequency = 0;  // pairs that are seen less often do not become tokens
};

struct TrainedBpe {
  std::vector<std::string> special_tokens;
  std::vector<std::string> tokens;  // by id, in GPT-2's alphabet; special ones first
  std::vector<std::pair<std::string, std::string>> merges;
  int64_t words = 0, bytes = 0;  // that were looked at
  int64_t vocab_size() const { return static_cast<int64_t>(tokens.size()); }
};

class BpeTrainer {
 public:
  explicit BpeTrainer(
      BpeTrainerOptions options);  // ConfigError 248: fewer tokens than bytes and special ones are
  void add(std::string_view text);
  TrainedBpe train();

 private:
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const;
  };
  struct Same {
    using is_transparent = void;
    bool operator()(std::string_view a, std::string_view b) const { return a == b; }
  };
  BpeTrainerOptions options_;
  std::unordered_map<std::string, int64_t, Hash, Same> words_;
  int64_t bytes_ = 0;
};

// FOLDER/tokenizer.json, which `tokenizers` and transformers open too.
void save_tokenizer(const TrainedBpe& learned, const std::string& folder);

}  // namespace lockstep::text
