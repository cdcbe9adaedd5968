// Data whose tokens have a tokenizer: text that is encoded when it is opened, and token files that read as
// text.
#pragma once

#include <memory>

#include "lockstep/data/dataset.h"
#include "lockstep/text/tokenizer.h"

namespace lockstep::data {

using SharedTokenizer = std::shared_ptr<const text::Tokenizer>;

// What data.tokenizer names; null: "bytes". ConfigError 207: there is none.
SharedTokenizer tokenizer_of(const recipe::Recipe::Data& data);

// Text or JSONL of data.path, in memory as tokens. `extensions`: see FileQuery.
std::unique_ptr<Dataset> open_tokenized(const recipe::Recipe& recipe, Use use,
                                        const std::vector<std::string>& extensions,
                                        SharedTokenizer tokenizer);

// The same data; generate's text goes through the tokenizer. Null: as it is.
std::unique_ptr<Dataset> with_tokenizer(std::unique_ptr<Dataset> dataset, SharedTokenizer tokenizer);

}  // namespace lockstep::data
