#include "lockstep/data/grammar/grammar.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cctype>
#include <numeric>

#include "lockstep/base/error.h"
#include "lockstep/base/hash.h"
#include "lockstep/base/philox.h"
#include "lockstep/data/grammar/english_rules.h"
#include "lockstep/data/kind.h"

namespace lockstep::data {
namespace {

constexpr size_t kLongestWord = 40;  // of a prompt, as far as error messages go

// [0, 1) with 53 bits: the probabilities are doubles.
double unit_double(base::Random4 random) {
  const uint64_t bits = static_cast<uint64_t>(random.x) << 32 | random.y;
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

bool is_mark(const std::string& word) {
  return word.size() == 1 && std::ispunct(static_cast<unsigned char>(word[0])) != 0;
}

size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row[b.size()];
}

std::string nearest(const std::string& word, const std::vector<std::string>& words) {
  return *std::min_element(words.begin(), words.end(), [&](const std::string& a, const std::string& b) {
    return edit_distance(word, a) < edit_distance(word, b);
  });
}

// Words apart at spaces; each punctuation mark is a word of its own.
std::vector<std::string> split_text(const std::string& text) {
  std::vector<std::string> words;
  bool open = false;  // whether the next letter belongs to the last word
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isspace(byte) != 0) {
      open = false;
    } else if (std::ispunct(byte) != 0 || !open) {
      words.emplace_back(1, c);
      open = std::ispunct(byte) == 0;
    } else {
      words.back() += c;
    }
  }
  return words;
}

}  // namespace

Grammar::Grammar(uint64_t seed, int64_t seq_len)
    : seed_(seed),
      automaton_(english_rules(seed), kEnglishStart),
      end_(word_id(kEnglishEnd)),
      floor_(statistics(automaton_).mean_entropy(seq_len)) {}

int32_t Grammar::word_id(const std::string& word) const {
  const std::vector<std::string>& words = automaton_.words();
  const auto found = std::lower_bound(words.begin(), words.end(), word);
  return found != words.end() && *found == word ? static_cast<int32_t>(found - words.begin()) : -1;
}

void Grammar::read(Split split, int64_t index, std::span<int32_t> inputs, std::span<int32_t> labels) const {
  LS_ASSERT(index >= 0 && index < samples(split) && inputs.size() == labels.size());
  const uint64_t key = base::hash_combine(base::hash_combine(seed_, static_cast<uint64_t>(split)), 1);
  int32_t state = automaton_.start(), word = end_;
  for (size_t t = 0; t < labels.size(); ++t) {
    inputs[t] = word;
    const double uniform = unit_double(base::philox(key, static_cast<uint64_t>(index), t));
    const SentenceAutomaton::Arc& arc = automaton_.pick(state, uniform);
    labels[t] = word = arc.word;
    state = arc.next;
  }
}

std::string Grammar::describe() const {
  return fmt::format("grammar {}: {} words, floor {:.3f} nats/token", static_cast<int64_t>(seed_), vocab(),
                     floor_);
}

uint64_t Grammar::content_hash() const {
  uint64_t hash = seed_;
  for (const std::string& word : automaton_.words()) hash = base::hash_combine(hash, base::hash_text(word));
  for (int32_t state = 0; state < automaton_.states(); ++state) {
    for (const auto& arc : automaton_.arcs(state)) {
      hash =
          base::hash_combine(hash, static_cast<uint64_t>(arc.word) << 32 | static_cast<uint32_t>(arc.next));
      hash = base::hash_combine(hash, std::bit_cast<uint64_t>(arc.probability));
    }
  }
  return hash;
}

std::string Grammar::decode(std::span<const int32_t> tokens) const {
  std::string text;
  bool tight = true, quoted = false;  // tight: no space before the next word
  for (const int32_t token : tokens) {
    const bool known = token >= 0 && token < vocab();
    const std::string word =
        known ? automaton_.words()[static_cast<size_t>(token)] : fmt::format("<{}>", token);
    const bool closing = word == "\"" ? quoted : is_mark(word) && word != "(" && word != "[";
    if (!tight && !closing) text += ' ';
    text += word;
    if (word == "\"") quoted = !quoted;
    if (token == end_) quoted = false;  // a quote that was left open ends with its sentence
    tight = is_mark(word) && !closing;
  }
  return text;
}

std::vector<int32_t> Grammar::encode(const std::string& text) const {
  std::vector<int32_t> tokens;
  for (const std::string& word : split_text(text)) {
    const int32_t token = word_id(word);
    if (token < 0) {
      const std::string shown = word.substr(0, kLongestWord);
      throw base::ConfigError(220, fmt::format("the grammar has no word \"{}\"; the nearest is \"{}\"", shown,
                                               nearest(shown, automaton_.words())));
    }
    tokens.push_back(token);
  }
  return tokens;
}

Grammar::Judgement Grammar::judge(std::span<const int32_t> tokens) const {
  Judgement judgement;
  size_t first = 0;
  for (size_t t = 0; t < tokens.size(); ++t) {
    if (tokens[t] != end_) continue;
    // A "." at the very start is the end of the sentence before, as in every sample.
    if (t > 0) {
      ++judgement.sentences;
      judgement.accepted += automaton_.accepts(tokens.subspan(first, t + 1 - first));
    }
    first = t + 1;
  }
  return judgement;
}

std::optional<double> Grammar::acceptance(std::span<const int32_t> tokens) const {
  const Judgement judgement = judge(tokens);
  if (judgement.sentences == 0) return std::nullopt;
  return static_cast<double>(judgement.accepted) / static_cast<double>(judgement.sentences);
}

namespace {

std::unique_ptr<Dataset> open_grammar(const recipe::Recipe& recipe, Use) {
  return std::make_unique<Grammar>(static_cast<uint64_t>(recipe.data.grammar_seed), recipe.data.seq_len);
}

}  // namespace

DatasetKind grammar_kind() {
  return {.name = "grammar",
          .describe = "a synthetic language, no download needed",
          .reads = {"data.grammar_seed"},
          .makes = "sentences",
          .open = open_grammar};
}

}  // namespace lockstep::data
