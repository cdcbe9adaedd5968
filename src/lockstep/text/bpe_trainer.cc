#include "lockstep/text/bpe_trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <queue>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/hash.h"
#include "lockstep/text/byte_level.h"
#include "lockstep/text/scan.h"
#include "lockstep/text/utf8.h"

namespace lockstep::text {
namespace {

using Pair = uint64_t;  // two ids; comparing them compares the pairs
Pair pair_of(int32_t left, int32_t right) {
  return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
}
int32_t left_of(Pair pair) { return static_cast<int32_t>(pair >> 32); }
int32_t right_of(Pair pair) { return static_cast<int32_t>(pair); }

// How often each pair occurs: open addressing, because this is what training does all the time.
class PairCounts {
 public:
  PairCounts() : slots_(1 << 16) {}
  int64_t& operator[](Pair pair) {
    if (used_ * 2 > slots_.size()) grow();
    Slot& slot = find(pair);
    if (slot.pair == kEmpty) slot.pair = pair, ++used_;
    return slot.count;
  }

 private:
  static constexpr Pair kEmpty = UINT64_MAX;
  struct Slot {
    Pair pair = kEmpty;
    int64_t count = 0;
  };
  Slot& find(Pair pair) {
    size_t at = base::hash_combine(0, pair) & (slots_.size() - 1);
    while (slots_[at].pair != pair && slots_[at].pair != kEmpty) at = (at + 1) & (slots_.size() - 1);
    return slots_[at];
  }
  void grow() {
    std::vector<Slot> old(slots_.size() * 2);
    old.swap(slots_);
    for (const Slot& slot : old) {
      if (slot.pair != kEmpty) find(slot.pair) = slot;
    }
  }
  std::vector<Slot> slots_;
  size_t used_ = 0;
};

struct Word {
  std::vector<int32_t> tokens;
  int64_t count;
};

// A pair that may become a token, and the words where it was when this was written down.
struct Candidate {
  int64_t count;
  Pair pair;
  std::vector<uint32_t> words;
};
struct Later {
  bool operator()(const Candidate& a, const Candidate& b) const {
    return a.count != b.count ? a.count < b.count : a.pair > b.pair;
  }
};

class Learning {
 public:
  Learning(std::vector<Word> words, TrainedBpe& out) : words_(std::move(words)), out_(out) {
    for (size_t i = 0; i < out_.tokens.size(); ++i) ids_.emplace(out_.tokens[i], static_cast<int32_t>(i));
    for (uint32_t i = 0; i < words_.size(); ++i) {
      const std::vector<int32_t>& tokens = words_[i].tokens;
      for (size_t at = 0; at + 1 < tokens.size(); ++at)
        count(pair_of(tokens[at], tokens[at + 1]), words_[i].count, i);
    }
    offer_found();
  }

  void run(int64_t vocab_size, int64_t min_frequency) {
    while (static_cast<int64_t>(out_.tokens.size()) < vocab_size && !queue_.empty()) {
      Candidate top = std::move(const_cast<Candidate&>(queue_.top()));
      queue_.pop();
      if (const int64_t now = counts_[top.pair]; top.count != now) {  // others took some of it meanwhile
        top.count = now;
        queue_.push(std::move(top));
        continue;
      }
      if (top.count < 1 || top.count < min_frequency) return;
      const int32_t joined = join(top.pair);
      for (const uint32_t word : top.words) merge_in(word, top.pair, joined);
      offer_found();
    }
  }

 private:
  // `found_` lists words in their order, so a word that is there already is the last one.
  void count(Pair pair, int64_t change, uint32_t word) {
    counts_[pair] += change;
    if (change < 0) return;
    std::vector<uint32_t>& list = found_[pair];
    if (list.empty() || list.back() != word) list.push_back(word);
  }

  void offer_found() {
    for (auto& [pair, list] : found_) {
      if (const int64_t now = counts_[pair]; now > 0) queue_.push({now, pair, std::move(list)});
    }
    found_.clear();
  }

  int32_t join(Pair pair) {
    const std::string& left = out_.tokens[static_cast<size_t>(left_of(pair))];
    const std::string& right = out_.tokens[static_cast<size_t>(right_of(pair))];
    out_.merges.emplace_back(left, right);
    const auto [place, is_new] = ids_.emplace(left + right, static_cast<int32_t>(out_.tokens.size()));
    if (is_new) out_.tokens.push_back(place->first);
    return place->second;
  }

  // The count of the pair itself is left as it is: nobody asks for it again but through a list of other
  // words.
  void merge_in(uint32_t index, Pair pair, int32_t joined) {
    Word& word = words_[index];
    std::vector<int32_t>& tokens = word.tokens;
    size_t kept = 0;
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (i + 1 >= tokens.size() || pair_of(tokens[i], tokens[i + 1]) != pair) {
        tokens[kept++] = tokens[i];
        continue;
      }
      if (kept > 0) {
        count(pair_of(tokens[kept - 1], left_of(pair)), -word.count, index);
        count(pair_of(tokens[kept - 1], joined), word.count, index);
      }
      if (i + 2 < tokens.size()) {
        count(pair_of(right_of(pair), tokens[i + 2]), -word.count, index);
        count(pair_of(joined, tokens[i + 2]), word.count, index);
      }
      tokens[kept++] = joined;
      ++i;
    }
    tokens.resize(kept);
  }

  std::vector<Word> words_;
  TrainedBpe& out_;
  std::unordered_map<std::string, int32_t> ids_;
  PairCounts counts_;
  std::unordered_map<Pair, std::vector<uint32_t>> found_;  // pairs that are new since the last offer
  std::priority_queue<Candidate, std::vector<Candidate>, Later> queue_;
};

std::vector<std::string> alphabet() {
  std::vector<std::pair<uint32_t, std::string>> letters;
  for (int byte = 0; byte < 256; ++byte) {
    const std::string& letter = letter_of_byte(static_cast<unsigned char>(byte));
    const char* at = letter.data();
    letters.emplace_back(next_char(at), letter);
  }
  std::sort(letters.begin(), letters.end());
  std::vector<std::string> out;
  for (const auto& [code, letter] : letters) out.push_back(letter);
  return out;
}

}  // namespace

size_t BpeTrainer::Hash::operator()(std::string_view text) const { return base::hash_text(text); }

BpeTrainer::BpeTrainer(BpeTrainerOptions options) : options_(std::move(options)) {
  const int64_t least = 256 + static_cast<int64_t>(options_.special_tokens.size());
  if (options_.vocab_size < least) {
    throw base::ConfigError(
        248, fmt::format("--vocab-size {} is too small: the bytes and special tokens are {} by themselves",
                         options_.vocab_size, least));
  }
}

void BpeTrainer::add(std::string_view bytes) {
  std::string store;
  const std::string_view text = whole_utf8(bytes, store);
  bytes_ += static_cast<int64_t>(bytes.size());
  const Unicode& unicode = Unicode::table();
  const Scan scan = find_scan(kGpt2Pattern);
  const char *at = text.data(), *end = at + text.size();
  while (at < end) {
    const char* next = scan(unicode, at, end);
    const std::string_view word(at, next);
    const auto found = words_.find(word);
    if (found != words_.end()) {
      ++found->second;
    } else {
      words_.emplace(word, 1);
    }
    at = next;
  }
}

TrainedBpe BpeTrainer::train() {
  TrainedBpe out;
  out.special_tokens = options_.special_tokens;
  out.tokens = options_.special_tokens;
  const auto first = static_cast<int32_t>(out.tokens.size());
  int32_t ids[256];
  const std::vector<std::string> letters = alphabet();
  for (int byte = 0; byte < 256; ++byte) {
    const auto place =
        std::find(letters.begin(), letters.end(), letter_of_byte(static_cast<unsigned char>(byte)));
    ids[byte] = first + static_cast<int32_t>(place - letters.begin());
  }
  out.tokens.insert(out.tokens.end(), letters.begin(), letters.end());
  out.words = static_cast<int64_t>(words_.size());
  out.bytes = bytes_;
  std::vector<Word> words;
  words.reserve(words_.size());
  for (const auto& [word, count] : words_) {
    Word& one = words.emplace_back(Word{{}, count});
    for (const char byte : word) one.tokens.push_back(ids[static_cast<unsigned char>(byte)]);
  }
  words_.clear();
  Learning(std::move(words), out).run(options_.vocab_size, options_.min_frequency);
  return out;
}

void save_tokenizer(const TrainedBpe& learned, const std::string& folder) {
  using nlohmann::json;
  json added = json::array(), vocab = json::object(), merges = json::array();
  for (size_t i = 0; i < learned.special_tokens.size(); ++i) {
    added.push_back({{"id", i},
                     {"content", learned.special_tokens[i]},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  }
  for (size_t i = 0; i < learned.tokens.size(); ++i) vocab[learned.tokens[i]] = i;
  for (const auto& [left, right] : learned.merges) merges.push_back({left, right});
  const json bytes = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
  const json file = {{"version", "1.0"},
                     {"truncation", nullptr},
                     {"padding", nullptr},
                     {"added_tokens", added},
                     {"normalizer", nullptr},
                     {"pre_tokenizer", bytes},
                     {"post_processor", nullptr},
                     {"decoder", bytes},
                     {"model",
                      {{"type", "BPE"},
                       {"dropout", nullptr},
                       {"unk_token", nullptr},
                       {"continuing_subword_prefix", nullptr},
                       {"end_of_word_suffix", nullptr},
                       {"fuse_unk", false},
                       {"byte_fallback", false},
                       {"ignore_merges", false},
                       {"vocab", vocab},
                       {"merges", merges}}}};
  base::make_folders(folder);
  base::write_file_durable(folder + "/tokenizer.json", file.dump(1) + "\n");
}

}  // namespace lockstep::text
