#include "lockstep/data/documents/document_samples.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/hash.h"
#include "lockstep/base/text.h"
#include "lockstep/data/documents/packing.h"
#include "lockstep/data/tokens/windows.h"
#include "lockstep/kernels/attention/attention.h"
#include "lockstep/kernels/loss/loss.h"

namespace lockstep::data {
namespace {

using base::human_count;
using kernels::kIgnoredLabel;

// Documents of one split, and which of them a sample holds.
class Shelf {
 public:
  Shelf() = default;
  Shelf(DocumentStore documents, int64_t seq_len, const recipe::Recipe& recipe)
      : documents_(std::move(documents)) {
    if (!recipe.data.pack) return;
    std::vector<int64_t> lengths;
    for (int64_t i = 0; i < documents_.size(); ++i) lengths.push_back(read_length(i));
    const Packing::Room room{seq_len, kernels::most_documents(seq_len) - 1};  // and one for padding
    packing_.emplace(lengths, room, static_cast<uint64_t>(recipe.run.seed));
  }
  const DocumentStore& documents() const { return documents_; }
  bool packed() const { return packing_.has_value(); }
  int64_t samples() const { return packing_ ? packing_->samples() : documents_.size(); }
  int64_t read_tokens() const { return documents_.tokens() - documents_.size(); }

  // use(document, place) for those of a sample.
  template <class Use>
  void each(int64_t sample, const Use& use) const {
    if (!packing_) return use(sample, size_t{0});
    size_t place = 0;
    for (const int64_t document : packing_->documents(sample)) {
      use(document, place);
      place += static_cast<size_t>(read_length(document));
    }
  }

 private:
  int64_t read_length(int64_t document) const {
    return static_cast<int64_t>(documents_.document(document).size()) - 1;
  }
  DocumentStore documents_;
  std::optional<Packing> packing_;
};

class Documents final : public Dataset {
 public:
  Documents(const recipe::Recipe& recipe, DocumentKind kind, std::vector<std::string> left_out)
      : name_(recipe.data.kind),
        path_(recipe.data.path),
        eval_path_(recipe.data.eval_path),
        seq_len_(recipe.data.seq_len),
        kind_(std::move(kind)),
        left_out_(std::move(left_out)) {}
  Shelf train, eval;
  bool own_eval = false;

  int64_t vocab() const override { return kind_.vocab; }
  int64_t samples(Split split) const override { return shelf(split).samples(); }
  bool has_documents() const override { return train.packed() || eval.packed(); }
  bool has_pairs() const override { return kind_.pairs; }

  void read(Split split, int64_t index, std::span<int32_t> inputs, std::span<int32_t> labels) const override {
    LS_ASSERT(index >= 0 && index < samples(split));
    LS_ASSERT(static_cast<int64_t>(inputs.size()) == seq_len_ && inputs.size() == labels.size());
    std::fill(inputs.begin(), inputs.end(), kind_.padding);
    std::fill(labels.begin(), labels.end(), kIgnoredLabel);
    shelf(split).each(index, [&](int64_t document, size_t place) {
      const std::span<const uint32_t> words = shelf(split).documents().document(document);
      for (size_t i = 0; i + 1 < words.size(); ++i) {
        inputs[place + i] = token_of(words[i]);
        if (is_trained(words[i + 1])) labels[place + i] = token_of(words[i + 1]);
      }
    });
  }

  // What is behind the last document is one of its own.
  void read_documents(Split split, int64_t index, std::span<int32_t> begins) const override {
    size_t end = 0;
    const auto fill = [&](size_t place, size_t length) {
      std::fill_n(begins.begin() + static_cast<std::ptrdiff_t>(place), length, static_cast<int32_t>(place));
      end = place + length;
    };
    shelf(split).each(index, [&](int64_t document, size_t place) {
      fill(place, shelf(split).documents().document(document).size() - 1);
    });
    fill(end, begins.size() - end);
  }

  std::string describe() const override {
    if (train.samples() == 0) return describe_eval();
    return fmt::format("{} {}: {}{}; {} samples to train on, {} to evaluate", name_, shown_path(path_),
                       documents_text(), packed_text(train), train.samples(), eval.samples()) +
           left_out_text(left_out_);
  }
  std::string describe_eval() const override {
    if (own_eval || train.samples() == 0)
      return fmt::format("{} {}: {}, {} tokens", name_, shown_path(own_eval ? eval_path_ : path_),
                         counted(eval.documents().size()),
                         human_count(static_cast<double>(eval.documents().tokens())));
    return fmt::format("{} {}: the last {} of {}, held out from training", name_, shown_path(path_),
                       eval.documents().size() / (kind_.pairs ? 2 : 1),
                       counted(eval.documents().size() + train.documents().size()));
  }
  std::vector<std::string> remarks() const override {
    std::vector<std::string> all;
    for (const Shelf* shelf : {&train, &eval}) {
      const DocumentStore::Counts& counts = shelf->documents().counts;
      for (const std::string& fault : counts.faults) all.push_back("skipped: " + fault);
      const int64_t more = counts.skipped - static_cast<int64_t>(counts.faults.size());
      if (more > 0) all.push_back(fmt::format("skipped: {} more", more));
    }
    return all;
  }
  uint64_t content_hash() const override {
    return base::hash_combine(train.documents().hash(), eval.documents().hash());
  }

 private:
  std::string counted(int64_t documents) const {
    const int64_t count = kind_.pairs ? documents / 2 : documents;
    return fmt::format("{} {}{}", count, kind_.unit, count == 1 ? "" : "s");
  }
  const Shelf& shelf(Split split) const { return split == Split::train ? train : eval; }

  std::string documents_text() const {
    const DocumentStore &a = train.documents(), &b = eval.documents();
    const int64_t tokens = a.tokens() + b.tokens(), trained = a.trained() + b.trained();
    std::string text =
        fmt::format("{}, {} tokens", counted(a.size() + b.size()), human_count(static_cast<double>(tokens)));
    if (trained < tokens && tokens > 0)
      text += fmt::format(" ({:.0f} % trained on)",
                          100.0 * static_cast<double>(trained) / static_cast<double>(tokens));
    text += fmt::format(", vocabulary {}", kind_.vocab);
    const auto add = [&](int64_t count, const std::string& what) {
      if (count > 0) text += fmt::format("; {} {}", count, what);
    };
    add(a.counts.truncated + b.counts.truncated, fmt::format("truncated to data.seq_len = {}", seq_len_));
    add(a.counts.split + b.counts.split, fmt::format("split at data.seq_len = {}", seq_len_));
    add(a.counts.skipped + b.counts.skipped, "skipped");
    return text;
  }
  std::string packed_text(const Shelf& shelf) const {
    if (!shelf.packed()) return "";
    return fmt::format("; packed, {:.1f} % full", 100.0 * static_cast<double>(shelf.read_tokens()) /
                                                      static_cast<double>(shelf.samples() * seq_len_));
  }

  std::string name_, path_, eval_path_;
  int64_t seq_len_;
  DocumentKind kind_;
  std::vector<std::string> left_out_;
};

// Something to train on, or to evaluate on.
const DocumentStore& checked(const DocumentStore& store, const char* key, const std::string& path,
                             const std::string& unit) {
  if (store.size() > 0) return store;
  throw base::DataError(205,
                        fmt::format("{} ({}) contains no {} that can be used{}", shown_path(path), key, unit,
                                    store.counts.faults.empty() ? "" : ": " + store.counts.faults.front()));
}

}  // namespace

std::unique_ptr<Dataset> open_document_samples(
    const recipe::Recipe& recipe, Use use, const DocumentKind& kind,
    const std::function<DocumentStore(const std::vector<std::string>& files)>& open) {
  const recipe::Recipe::Data& data = recipe.data;
  DataFiles files = find_data_files(data, use, kind.extensions);
  auto made = std::make_unique<Documents>(recipe, kind, files.left_out);
  if (!files.eval.empty()) {
    DocumentStore store = open(files.eval);
    made->own_eval = !data.eval_path.empty();
    checked(store, made->own_eval ? "data.eval_path" : "data.path",
            made->own_eval ? data.eval_path : data.path, kind.unit);
    made->eval = Shelf(std::move(store), data.seq_len, recipe);
  }
  if (files.train.empty()) return made;
  DocumentStore store = open(files.train);
  checked(store, "data.path", data.path, kind.unit);
  const int64_t together = kind.pairs ? 2 : 1;
  if (files.eval.empty())
    made->eval = Shelf(store.take_last(together * held_out(store.size() / together, data.eval_fraction)),
                       data.seq_len, recipe);
  made->train = Shelf(std::move(store), data.seq_len, recipe);
  return made;
}

}  // namespace lockstep::data
