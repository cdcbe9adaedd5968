// What kind of data files are, where the recipe leaves it to them (data.kind = "auto").
//
// Names tell first (.jsonl, .bin, .npy), then the first bytes. Files of several kinds, and bytes that could
// be anything, are refused: training on the wrong reading of them would go unnoticed.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "lockstep/recipe/schema.h"

namespace lockstep::data {

// "text", "jsonl" or "tokens" by the files of `path`; "grammar" without a path. ConfigError 208 where that
// cannot be told. `must_exist` = false: files need not be there, and their names tell.
std::string infer_kind(const std::string& path, bool must_exist = true);

// Puts the kind in the place of "auto". ConfigError 209: a path that the user has set beside "grammar", which
// reads no files.
void settle_kind(recipe::Resolved& resolved, bool must_exist = true);

// "a gzip archive": what a file begins like, if that is known and no data we read; empty otherwise.
std::string_view foreign_format(std::string_view first_bytes);

}  // namespace lockstep::data
