// Sources of data.mix, as a recipe names them: where each lies, and its share.
//
//     data.mix = "web/=0.7, code/=0.3"
//     data.mix = ["path=web/*.parquet weight=0.7 name=web", "path=books.jsonl weight=0.3 epochs=2"]
//
// In a file each may be a table, [[data.mix]] with path = "web/" (recipe/toml.h makes such text of it). A
// word without = belongs to the value before it, so paths may hold spaces; a comma in a path is written "\,".
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::recipe {

struct MixSource {
  std::string path, name;
  std::optional<double> weight = {};   // of all sources or of none
  std::optional<int64_t> epochs = {};  // the source is seen at most so often
  std::string eval = {};               // files of its own for evaluation
  std::string kind = {}, field = {};   // instead of data.kind and data.field
};

// ConfigError 148 names the source and what was expected.
std::vector<MixSource> read_mix(const std::string& text);
std::string write_mix(const std::vector<MixSource>& sources);  // that reads back to the same

// The text with other paths. Text that cannot be read stays as it is: read_mix() says what is wrong.
std::string with_paths(const std::string& text, const std::function<std::string(const std::string&)>& change);

}  // namespace lockstep::recipe
