#include "lockstep/data/grammar/english_rules.h"

#include <algorithm>
#include <numeric>
#include <sstream>

#include "lockstep/base/hash.h"
#include "lockstep/base/philox.h"

namespace lockstep::data {
namespace {

// Classes of words; the order of a list means nothing, the seed decides what is frequent.
// A word stands in one class only, or the grammar would not be LL(1).
struct WordClass {
  const char* name;
  const char* words;
};
constexpr WordClass kClasses[] = {
    {"noun.it",
     "dog cat bird horse cow duck frog bear goat crab farmer baker doctor teacher painter sailor king queen "
     "robot ghost"},
    {"verb.alone.it", "sleeps sings dances laughs runs smiles waits jumps"},
    {"verb.with.it", "sees likes helps follows finds hears draws calls knows visits"},
    {"adjective", "old young small big happy quiet brave clever red tired"},
    {"adverb", "often loudly slowly again today alone"},
    {"preposition", "near behind by in"},
    {"place", "river garden house market forest bridge"},
    {"determiner.it", "a this every one"},
    {"determiner.they", "some these many two"},
    {"name.she", "Anna Clara Mary Ruth"},
    {"name.he", "Ben David Paul Tom"},
};

// Templates: $ stands for each gender in turn, so "she" never differs from "they" in weights, and a
// model learns one fact instead of four.
struct Template {
  const char* left;
  double weight;
  const char* right;
};
constexpr Template kTemplates[] = {
    {"sentence", 64, "statement ."},
    {"sentence", 12, "when remembered ."},
    {"sentence", 10, "\" statement \" says name ."},
    {"sentence", 14, "bracketed ."},
    {"bracketed", 50, "( inside )"},
    {"bracketed", 50, "[ inside ]"},
    {"inside", 60, "statement"},
    {"inside", 20, "( statement )"},
    {"inside", 20, "[ statement ]"},

    {"statement", 45, "determiner.it nominal.it predicate.it"},
    {"statement", 35, "determiner.they nominal.they predicate.they"},
    {"statement", 10, "name.she predicate.she"},
    {"statement", 10, "name.he predicate.he"},
    {"nominal.$", 100, "described noun.$ relative.$"},
    {"described", 65, ""},
    {"described", 35, "adjective"},
    {"relative.$", 75, ""},
    {"relative.$", 25, "that verb.with.$ object"},

    {"predicate.$", 45, "verb.alone.$ manner"},
    {"predicate.$", 55, "verb.with.$ target.$"},
    {"manner", 50, ""},
    {"manner", 25, "adverb"},
    {"manner", 25, "preposition the place"},
    {"target.$", 60, "object"},
    {"target.$", 20, "reflexive.$"},
    {"target.$", 20, "possessive.$ noun.it"},
    {"object", 40, "determiner.it described noun.it"},
    {"object", 40, "determiner.they described noun.they"},
    {"object", 20, "name"},
    {"name", 50, "name.she"},
    {"name", 50, "name.he"},

    {"reflexive.she", 1, "herself"},
    {"reflexive.he", 1, "himself"},
    {"reflexive.it", 1, "itself"},
    {"reflexive.they", 1, "themselves"},
    {"possessive.she", 1, "her"},
    {"possessive.he", 1, "his"},
    {"possessive.it", 1, "its"},
    {"possessive.they", 1, "their"},
};

std::vector<std::string> split(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

std::string with_gender(std::string text, const std::string& gender) {
  for (size_t at; (at = text.find('$')) != std::string::npos;) text.replace(at, 1, gender);
  return text;
}

// Numbers that depend on the seed and on a name, not on the order of calls.
double draw(uint64_t seed, const std::string& name, uint64_t index) {
  const base::Random4 random = base::philox(base::mix64(seed), base::hash_text(name), index);
  return base::unit_float(random.x);
}

// Zipf's law in an order drawn from the seed: weight 1 for the most frequent word, 1/2, 1/3, ...
std::vector<double> zipf_weights(uint64_t seed, const std::string& name, size_t count) {
  std::vector<size_t> order(count);
  std::iota(order.begin(), order.end(), 0);
  for (size_t i = count; i > 1; --i) {  // Fisher-Yates
    std::swap(order[i - 1], order[static_cast<size_t>(draw(seed, name, i) * static_cast<double>(i))]);
  }
  std::vector<double> weights(count);
  for (size_t rank = 0; rank < count; ++rank) weights[order[rank]] = 1.0 / static_cast<double>(rank + 1);
  return weights;
}

void add_templates(uint64_t seed, std::vector<Rule>& rules) {
  for (const Template& t : kTemplates) {
    // Tilted by up to a quarter either way.
    const std::string name = std::string(t.left) + " -> " + t.right;
    const double weight = t.weight * (0.75 + 0.5 * draw(seed, name, 0));
    const bool gendered = name.find('$') != std::string::npos;
    for (const char* gender : {"she", "he", "it", "they"}) {
      rules.push_back({with_gender(t.left, gender), weight, split(with_gender(t.right, gender))});
      if (!gendered) break;
    }
  }
}

// "sees" to "see", "dog" to "dogs"; the lists hold regular words only.
std::string plural_form(const WordClass& words, const std::string& word) {
  return words.name == std::string("noun.it") ? word + "s" : word.substr(0, word.size() - 1);
}

void add_words(uint64_t seed, std::vector<Rule>& rules) {
  for (const WordClass& words : kClasses) {
    const std::string name = words.name;
    const std::vector<std::string> list = split(words.words);
    const std::vector<double> weights = zipf_weights(seed, name, list.size());
    const bool verb = name.starts_with("verb"), noun = name == "noun.it", person = name.starts_with("name");
    for (size_t i = 0; i < list.size(); ++i) {
      rules.push_back({name, weights[i], {list[i]}});
      if (noun) rules.push_back({"noun.they", weights[i], {plural_form(words, list[i])}});
      if (person) {  // "when Ben sings, Ben smiles": one rule a name carries it to its second place
        const std::string predicate = "predicate" + name.substr(name.find('.'));
        rules.push_back({"remembered", weights[i], {list[i], predicate, ",", list[i], predicate}});
      }
      if (!verb) continue;
      const std::string stem = name.substr(0, name.rfind('.'));
      rules.push_back({stem + ".she", weights[i], {list[i]}});
      rules.push_back({stem + ".he", weights[i], {list[i]}});
      rules.push_back({stem + ".they", weights[i], {plural_form(words, list[i])}});
    }
  }
}

}  // namespace

std::vector<Rule> english_rules(uint64_t seed) {
  std::vector<Rule> rules;
  add_templates(seed, rules);
  add_words(seed, rules);
  return rules;
}

}  // namespace lockstep::data
