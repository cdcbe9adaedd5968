#include "lockstep/data/tokens/windows.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "lockstep/base/descriptor_limit.h"
#include "lockstep/base/error.h"
#include "lockstep/base/hash.h"
#include "lockstep/data/formats/files.h"
#include "lockstep/recipe/path_list.h"
#include "lockstep/store/threads.h"

namespace lockstep::data {
namespace {

constexpr int kRequestsAtOnce = 16;

struct Source {
  const char* key;
  const std::string& path;
};

int64_t windows_in(const TokenStream& stream, int64_t seq_len, const Source& source) {
  const int64_t windows = (stream.size() - 1) / seq_len;
  if (stream.size() > 0 && windows > 0) return windows;
  throw base::DataError(
      205, fmt::format("{} ({}) contains {} tokens, but one sample of data.seq_len = {} needs "
                       "{}; use more data or a smaller data.seq_len",
                       shown_path(source.path), source.key, stream.size(), seq_len, seq_len + 1));
}

std::string skipped_text(const Skipped& skipped) {
  if (skipped.documents == 0) return "";
  return fmt::format("; {} document{} skipped", skipped.documents, skipped.documents > 1 ? "s" : "");
}

Source eval_source(const recipe::Recipe::Data& data) {
  return data.eval_path.empty() ? Source{"data.path", data.path} : Source{"data.eval_path", data.eval_path};
}

}  // namespace

std::string shown_path(const std::string& path) {
  constexpr size_t kMostShown = 100;
  const std::vector<std::string> parts = recipe::split_paths(path);
  if (path.size() <= kMostShown || parts.size() < 2) return path;
  return fmt::format("{} and {} more", parts.front(), parts.size() - 1);
}

std::string left_out_text(const std::vector<std::string>& files) {
  if (files.empty()) return "";
  return fmt::format("; skipped because of {}: {}{}", files.size() > 1 ? "their names" : "its name",
                     files.front(), files.size() > 1 ? fmt::format(" and {} more", files.size() - 1) : "");
}

int64_t held_out(int64_t samples, double fraction) {
  if (!(fraction > 0)) return 0;
  const double wanted = std::min(fraction, 1.0) * static_cast<double>(samples);
  return std::clamp<int64_t>(static_cast<int64_t>(wanted), std::min<int64_t>(1, samples - 1), samples - 1);
}

DataFiles find_data_files(const recipe::Recipe::Data& data, Use use,
                          const std::vector<std::string>& extensions) {
  DataFiles files;
  const auto remote = data.kind == "tokens" ? FileQuery::Remote::streamed : FileQuery::Remote::fetched;
  if (use == Use::evaluate) {
    const Source source = eval_source(data);
    FoundFiles found =
        find_files({.key = source.key, .path = source.path, .extensions = extensions, .remote = remote});
    files.eval = std::move(found.files);
    files.left_out = std::move(found.left_out);
    return files;
  }
  FileQuery query{.key = "data.path", .path = data.path, .extensions = extensions, .remote = remote};
  if (!data.eval_path.empty()) {
    FoundFiles held_out = find_files(
        {.key = "data.eval_path", .path = data.eval_path, .extensions = extensions, .remote = remote});
    query.excluded = held_out.files;
    files.eval = std::move(held_out.files);
    files.left_out = std::move(held_out.left_out);
  }
  FoundFiles found = find_files(query);
  files.train = std::move(found.files);
  files.left_out.insert(files.left_out.end(), found.left_out.begin(), found.left_out.end());
  return files;
}

Streams open_streams(const recipe::Recipe::Data& data, Use use, const std::vector<std::string>& extensions,
                     const std::function<TokenStream(const std::vector<std::string>& files)>& open) {
  DataFiles files = find_data_files(data, use, extensions);
  base::raise_descriptor_limit(static_cast<int>(files.train.size() + files.eval.size()));  // all stay open
  Streams streams;
  streams.left_out = std::move(files.left_out);
  if (!files.eval.empty()) streams.eval = open(files.eval);
  if (!files.train.empty()) streams.train = open(files.train);
  return streams;
}

WindowedDataset::WindowedDataset(const recipe::Recipe::Data& recipe, int64_t vocab, Streams streams)
    : kind_(recipe.kind),
      path_(recipe.path),
      eval_path_(eval_source(recipe).path),
      seq_len_(recipe.seq_len),
      vocab_(vocab),
      streams_(std::move(streams)) {
  if (streams_.train) train_windows_ = windows_in(*streams_.train, seq_len_, {"data.path", recipe.path});
  if (streams_.eval) {
    eval_windows_ = windows_in(*streams_.eval, seq_len_, eval_source(recipe));
  } else {
    eval_windows_ = held_out(train_windows_, recipe.eval_fraction);
    train_windows_ -= eval_windows_;
  }
}

int64_t WindowedDataset::samples(Split split) const {
  return split == Split::train ? train_windows_ : eval_windows_;
}

WindowedDataset::Place WindowedDataset::place_of(Split split, int64_t index) const {
  LS_ASSERT(index >= 0 && index < samples(split));
  const bool own_stream = split == Split::eval && streams_.eval.has_value();
  const int64_t before = split == Split::eval && !own_stream ? train_windows_ : 0;
  return {.stream = own_stream ? *streams_.eval : *streams_.train, .first = (before + index) * seq_len_};
}

// All tokens at once: of a store that is one request.
void WindowedDataset::read(Split split, int64_t index, std::span<int32_t> inputs,
                           std::span<int32_t> labels) const {
  LS_ASSERT(static_cast<int64_t>(inputs.size()) == seq_len_ && inputs.size() == labels.size());
  const Place place = place_of(split, index);
  if (!place.stream.is_remote()) {
    place.stream.copy(place.first, inputs);
    place.stream.copy(place.first + 1, labels);
    return;
  }
  std::vector<int32_t> tokens(inputs.size() + 1);
  place.stream.copy(place.first, tokens);
  std::copy(tokens.begin(), tokens.end() - 1, inputs.begin());
  std::copy(tokens.begin() + 1, tokens.end(), labels.begin());
}

void WindowedDataset::announce(Split split, std::span<const int64_t> wanted) const {
  if (wanted.empty() || !place_of(split, wanted.front()).stream.is_remote()) return;
  store::in_threads(kRequestsAtOnce, static_cast<int64_t>(wanted.size()), [&](int64_t i) {
    const Place place = place_of(split, wanted[static_cast<size_t>(i)]);
    place.stream.announce(place.first, seq_len_ + 1);
  });
}

std::string WindowedDataset::describe() const {
  if (!streams_.train) return describe_eval();
  return fmt::format("{} {}: {} tokens, vocabulary {}; {} samples to train on, {} to evaluate", kind_,
                     shown_path(path_), streams_.train->size() + (streams_.eval ? streams_.eval->size() : 0),
                     vocab_, train_windows_, eval_windows_) +
         skipped_text(streams_.skipped) + left_out_text(streams_.left_out);
}

std::vector<std::string> WindowedDataset::remarks() const {
  const Skipped& skipped = streams_.skipped;
  std::vector<std::string> lines;
  for (const std::string& sentence : skipped.first) lines.push_back("skipped: " + sentence);
  const int64_t more = skipped.documents - static_cast<int64_t>(skipped.first.size());
  if (more > 0) lines.push_back(fmt::format("and {} more", more));
  return lines;
}

std::string WindowedDataset::describe_eval() const {
  if (streams_.eval)
    return fmt::format("{} {}: {} tokens, vocabulary {}", kind_, shown_path(eval_path_),
                       streams_.eval->size(), vocab_) +
           left_out_text(streams_.left_out);
  return fmt::format("{} {}: the last {} of {} samples, held out from training", kind_, shown_path(path_),
                     eval_windows_, train_windows_ + eval_windows_);
}

uint64_t WindowedDataset::content_hash() const {
  return base::hash_combine(streams_.train ? streams_.train->hash() : 0,
                            streams_.eval ? streams_.eval->hash() : 0);
}

}  // namespace lockstep::data
