// The prompts of `generate`: words of the command line, lines of a text file, or objects of a JSONL file.
//
//     {"prompt": "The dog"}
//     {"messages": [{"role": "user", "content": "Hello"}]}
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace lockstep::cli {

struct WrittenPrompt {
  std::string text;                 // or
  nlohmann::ordered_json messages;  // null: text; for the model's chat template
  std::string where;                // "--prompt", "prompts.jsonl line 3"
};

// A file that ends in .jsonl or .json, or whose first character is a brace, is read as JSONL, any other as
// lines of text; "-" is standard input. ConfigError 198 names file and line.
std::vector<WrittenPrompt> read_prompts(const std::string& file);

}  // namespace lockstep::cli
