// The built-in grammar: small English sentences whose words and weights are drawn from a seed.
//
// It holds what a language model must learn to attend to, and little that it must memorise:
//   - verbs agree with their subject across adjectives and a relative clause:
//       "this dog that sees two cats sleeps."
//   - reflexives and possessives agree with it too: "Anna draws herself.", "some goats like their king."
//   - a name comes back: "when Ben sings, Ben smiles."
//   - brackets and quotes close as they opened: "([every cow waits])."
// Every seed uses the same words; it decides which are frequent (Zipf) and tilts the rules' weights.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/data/grammar/sentence_automaton.h"

namespace lockstep::data {

constexpr const char* kEnglishStart = "sentence";
constexpr const char* kEnglishEnd = ".";  // ends every sentence and stands nowhere else

std::vector<Rule> english_rules(uint64_t seed);

}  // namespace lockstep::data
