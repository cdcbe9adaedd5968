// `lockstep tokenize --ids`: lines of text to lines of ids, and back with --decode.
#pragma once

#include <string>

#include "lockstep/text/tokenizer.h"

namespace lockstep::cli {

struct LinesWanted {
  std::string tokenizer;
  bool decode = false;
  bool json = false;  // a line is a JSON string or a JSON list of ids: texts may hold ends of lines
  bool skip_special = false;
  text::EncodeOptions encoding;
};
int tokenize_lines(const LinesWanted& wanted);  // standard input to standard output

}  // namespace lockstep::cli
