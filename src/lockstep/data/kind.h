// The table of datasets: one file and one row each, and what "auto" makes of files.
//
// A row says how its data is opened, the keys that it reads, how its files are known and how its tokens read
// as text. A program adds its own before it reads a recipe: register_dataset(row); then data.kind takes its
// name, and data.kind = "auto" knows its files.
//
// Of files with data.kind = "auto", the first bytes tell where a format has its own, then names (.jsonl,
// .bin), then what the bytes look like; compressed files are what they hold. Files of several kinds, and
// bytes that could be anything, are refused: training on the wrong reading of them would go unnoticed.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/data/dataset.h"
#include "lockstep/recipe/schema.h"

namespace lockstep::data {

// How the files of a kind are known.
struct FileSigns {
  // Asked first: whether objects or rows with these keys are of this kind, whatever file holds them: "a
  // .jsonl whose objects are conversations". Null: no.
  std::function<bool(const std::vector<std::string>& keys)> claims = {};
  bool tables = false;                    // rows with named columns: the first file's may be claimed
  std::vector<std::string> begins = {};   // the first bytes of each of its formats
  std::vector<std::string> endings = {};  // ".jsonl", in small letters
  // Asked where neither tells: the first bytes of a file with this ending. Null: no.
  std::function<bool(std::string_view ending, std::string_view first_bytes)> looks_like = {};
};

// How tokens read as text where the files themselves are not needed for that.
struct Words {
  int64_t vocab = 0;  // 0: only model.vocab says it
  int32_t start = 0;  // what a text begins with
  std::string (*decode)(std::span<const int32_t>) = nullptr;
  std::vector<int32_t> (*encode)(const std::string&, int64_t vocab) = nullptr;
};

struct DatasetKind {
  std::string name;
  std::string describe;                 // one line
  std::vector<std::string> reads = {};  // keys of [data] that count for this kind and not for all
  std::string makes = {};  // "sentences": it makes them up and reads no file; empty: it reads data.path
  FileSigns files = {};
  bool plain = false;  // what files are that nothing tells
  bool of_any_tokenizer =
      false;  // numbers that do not say whose tokens they are: they fit where there is room
  std::optional<Words> words = {};
  std::function<std::unique_ptr<Dataset>(const recipe::Recipe&, Use)> open;
};

const std::vector<DatasetKind>& dataset_kinds();
const DatasetKind& find_kind(const std::string& name);       // ConfigError 200
bool is_of_any_tokenizer(const recipe::Recipe::Data& data);  // of "auto": false; of data.mix: all of them
// Before the first recipe is read (base/registry.h).
void register_dataset(DatasetKind kind);

// "text", "jsonl", "chat", "parquet" or another by the files of `path`; "grammar" without a path. ConfigError
// 208 where that cannot be told. `must_exist` = false: files need not be there, and their names tell.
// `field`: data.field, which makes documents of conversations that have one of that name.
std::string infer_kind(const std::string& path, bool must_exist = true, const std::string& field = "text");

// Puts the kind in the place of "auto", and the tokenizer of model.from where conversations have no other.
// ConfigError 209: a path that the user has set beside a kind that reads no files.
void resolve_kind(recipe::Resolved& resolved, bool must_exist = true);

// "a gzip archive": what a file begins like, if that is known and no data we read; empty otherwise.
std::string_view foreign_format(std::string_view first_bytes);

// What kinds with documents have in common: the keys that they read, and their tokens as text.
std::vector<std::string> document_keys();
Words document_words();

// The kinds' own files.
DatasetKind grammar_kind();
DatasetKind text_kind();
DatasetKind jsonl_kind();
DatasetKind chat_kind();
DatasetKind preference_kind();
DatasetKind csv_kind();
DatasetKind parquet_kind();
DatasetKind arrow_kind();
DatasetKind mds_kind();
DatasetKind mix_kind();
DatasetKind tokens_kind();
DatasetKind arrays_kind();

}  // namespace lockstep::data
