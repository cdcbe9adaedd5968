#include "lockstep/data/shown.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "lockstep/data/documents/chat.h"
#include "lockstep/data/documents/documents.h"
#include "lockstep/data/documents/encoded_records.h"
#include "lockstep/data/documents/preference.h"
#include "lockstep/data/formats/files.h"
#include "lockstep/data/kind.h"
#include "lockstep/data/tokens/windows.h"
#include "lockstep/kernels/loss/loss.h"
#include "lockstep/text/utf8.h"

namespace lockstep::data {
namespace {

using kernels::kIgnoredLabel;

// How much of `whole`, the text of all tokens, belongs to those whose text by themselves is `text`: a
// character that reaches over the edge belongs to what follows.
size_t shared(const std::string& whole, const std::string& text) {
  auto at = static_cast<size_t>(std::mismatch(whole.begin(), whole.end(), text.begin(), text.end()).first -
                                whole.begin());
  while (at > 0 && at < whole.size() && text::continues_char(whole[at])) --at;
  return at;
}

// Decoders treat the first token of a text in another way, so a part is cut out of the whole.
void add_parts(const Dataset& dataset, std::span<const int32_t> tokens, size_t first, int64_t document,
               ShownSample& shown) {
  const std::string whole = dataset.decode(tokens);
  for (size_t begin = 0, at = 0; begin < tokens.size();) {
    const bool trained = shown.trained[first + begin];
    size_t end = begin + 1;
    while (end < tokens.size() && shown.trained[first + end] == trained) ++end;
    const size_t last = end == tokens.size()
                            ? whole.size()
                            : std::max(at, shared(whole, dataset.decode(tokens.subspan(0, end))));
    if (last > at) shown.parts.push_back({whole.substr(at, last - at), trained, document});
    begin = end;
    at = last;
  }
}

LengthStatistics statistics_of(std::vector<int64_t> lengths, int64_t seq_len) {
  LengthStatistics made;
  if (lengths.empty()) return made;
  std::sort(lengths.begin(), lengths.end());
  const auto at = [&](double share) {
    return lengths[static_cast<size_t>(share * static_cast<double>(lengths.size() - 1) + 0.5)];
  };
  made.documents = static_cast<int64_t>(lengths.size());
  made.least = lengths.front(), made.median = at(0.5), made.p95 = at(0.95), made.most = lengths.back();
  for (const int64_t length : lengths) {
    made.tokens += length;
    made.too_long += length > seq_len + 1;
  }
  return made;
}

LengthStatistics measure_chats(const recipe::Recipe& recipe) {
  const std::vector<std::string> files = find_data_files(recipe.data, Use::evaluate, record_endings()).eval;
  const ChatOptions options{.longest = std::numeric_limits<size_t>::max(),
                            .on_error = recipe.data.on_error == "skip" ? OnError::skip : OnError::stop};
  const DocumentStore store = recipe.data.kind == "preference"
                                  ? encode_preferences(files, open_preference_speech(recipe), options)
                                  : encode_chats(files, open_speech(recipe), options);
  std::vector<int64_t> lengths;
  for (int64_t i = 0; i < store.size(); ++i)
    lengths.push_back(static_cast<int64_t>(store.document(i).size()));
  LengthStatistics made = statistics_of(std::move(lengths), recipe.data.seq_len);
  made.trained = store.trained();
  made.skipped = store.counts.skipped;
  made.faults = store.counts.faults;
  return made;
}

std::optional<int32_t> end_of_documents(const recipe::Recipe& recipe) {
  if (const SharedTokenizer tokenizer = tokenizer_of(recipe.data)) return tokenizer->end_token();
  const std::optional<Words>& words = find_kind(recipe.data.kind).words;
  if (words && words->vocab == kEndOfDocument + 1) return kEndOfDocument;
  return std::nullopt;
}

}  // namespace

ShownSample show_sample(const Dataset& dataset, int64_t index, int64_t seq_len) {
  const auto size = static_cast<size_t>(seq_len);
  std::vector<int32_t> inputs(size), labels(size), begins(size, 0);
  dataset.read(Split::train, index, inputs, labels);
  dataset.read_documents(Split::train, index, begins);
  ShownSample shown;
  for (size_t begin = 0; begin < size;) {
    size_t end = begin + 1;
    while (end < size && begins[end] == begins[begin]) ++end;
    const auto is_ignored = [](int32_t label) { return label == kIgnoredLabel; };
    const bool padding =
        begin > 0 && end == size &&
        std::all_of(labels.begin() + static_cast<std::ptrdiff_t>(begin), labels.end(), is_ignored);
    if (!padding) {
      const size_t first = shown.tokens.size();
      shown.documents.push_back(static_cast<int64_t>(first));
      shown.tokens.push_back(inputs[begin]);
      shown.trained.push_back(false);
      for (size_t i = begin; i < end; ++i) {
        // The last token of a document is only predicted.
        if (i + 1 == end && labels[i] == kIgnoredLabel) break;
        shown.tokens.push_back(i + 1 < end ? inputs[i + 1] : labels[i]);
        shown.trained.push_back(labels[i] != kIgnoredLabel);
        shown.trained_count += labels[i] != kIgnoredLabel;
      }
      add_parts(dataset, std::span(shown.tokens).subspan(first), first,
                static_cast<int64_t>(shown.documents.size()) - 1, shown);
    }
    begin = end;
  }
  return shown;
}

LengthStatistics measure_documents(const recipe::Recipe& recipe, const Dataset& dataset) {
  if (recipe.data.kind == "chat" || recipe.data.kind == "preference") return measure_chats(recipe);
  const std::optional<int32_t> last = end_of_documents(recipe);
  if (!last || dataset.has_documents()) return {};
  const auto size = static_cast<size_t>(recipe.data.seq_len);
  std::vector<int32_t> inputs(size), labels(size);
  std::vector<int64_t> lengths;
  int64_t length = 0;
  for (int64_t i = 0; i < dataset.samples(Split::train); ++i) {
    dataset.read(Split::train, i, inputs, labels);
    for (const int32_t token : inputs) {
      ++length;
      if (token != *last) continue;
      lengths.push_back(length);
      length = 0;
    }
  }
  return statistics_of(std::move(lengths), recipe.data.seq_len);
}

}  // namespace lockstep::data
