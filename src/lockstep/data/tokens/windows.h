// What text, jsonl and token files have in common: a stream cut into consecutive windows.
//
// Window i holds tokens i * seq_len .. (i + 1) * seq_len, one more than it reads: the last is only
// predicted, and is the first that window i + 1 reads. So every token but the stream's first is
// predicted once an epoch; what does not fill a last window is left out. Evaluation has a stream of its
// own, or the last windows of the training stream.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/data/announced.h"
#include "lockstep/data/dataset.h"
#include "lockstep/data/tokens/token_stream.h"

namespace lockstep::data {

// The files of data.path and data.eval_path. A file that is held out for evaluation is not trained on when
// data.path is a folder or a pattern that holds it too. `extensions`: see FileQuery.
struct DataFiles {
  std::vector<std::string> train;     // empty when there is only something to evaluate
  std::vector<std::string> eval;      // empty when a part of the training data is held out
  std::vector<std::string> left_out;  // files of folders that are not data, by their names
};
DataFiles find_data_files(const recipe::Recipe::Data& data, Use use,
                          const std::vector<std::string>& extensions);

// What messages and plans have in common.
std::string shown_path(const std::string& path);                   // a long list by its first name
std::string left_out_text(const std::vector<std::string>& files);  // "; skipped because of its name: a.md"
// At least one to evaluate on when a share was asked for, at least one to train on in any case.
int64_t held_out(int64_t samples, double fraction);

// Documents that could not be used and were left out (data.on_error = "skip").
struct Skipped {
  int64_t documents = 0;
  std::vector<std::string> first = {};  // a sentence each, with file and place
};

struct Streams {
  std::optional<TokenStream> train;   // without value when there is only something to evaluate
  std::optional<TokenStream> eval;    // without value when the training stream's end is held out
  std::vector<std::string> left_out;  // files of folders that are not data, by their names
  Skipped skipped = {};
};
// Finds the files and opens them.
Streams open_streams(const recipe::Recipe::Data& data, Use use, const std::vector<std::string>& extensions,
                     const std::function<TokenStream(const std::vector<std::string>& files)>& open);

class WindowedDataset : public Dataset, public Announced {
 public:
  int64_t vocab() const override { return vocab_; }
  int64_t samples(Split split) const override;
  void read(Split split, int64_t index, std::span<int32_t> inputs, std::span<int32_t> labels) const override;
  void announce(Split split, std::span<const int64_t> samples) const override;
  std::string describe() const override;
  std::string describe_eval() const override;
  std::vector<std::string> remarks() const override;
  uint64_t content_hash() const override;

 protected:
  // DataError when a stream is too short for one window.
  WindowedDataset(const recipe::Recipe::Data& recipe, int64_t vocab, Streams streams);

 private:
  struct Place {
    const TokenStream& stream;
    int64_t first;  // token
  };
  Place place_of(Split split, int64_t index) const;

  std::string kind_, path_, eval_path_;
  int64_t seq_len_, vocab_;
  Streams streams_;
  int64_t train_windows_ = 0, eval_windows_ = 0;
};

}  // namespace lockstep::data
