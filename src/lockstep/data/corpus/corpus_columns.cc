// Parquet and Arrow files: a row is a document, the text or the tokens of one column (arrow/columns.h).
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "lockstep/data/arrow/columns.h"
#include "lockstep/data/corpus/corpus.h"

namespace lockstep::data {
namespace {

// Some rows of a batch.
struct SomeRows {
  std::shared_ptr<const ColumnRows> rows;
  size_t begin, end;
};

class ColumnCorpus final : public CorpusReader {
 public:
  ColumnCorpus(const std::string& file, const CorpusOptions& options, ColumnForm form)
      : file_(file),
        field_(options.field),
        part_(options.part),
        size_(static_cast<int64_t>(std::filesystem::file_size(file))),
        column_(size_ > 0 ? open_column({.file = file, .field = options.field, .form = form}) : nullptr) {}
  int64_t size() const override { return size_; }
  bool holds_tokens() const override { return column_ && column_->holds_tokens(); }

  std::optional<CorpusPart> next_part() override {
    while (!batch_ || at_ >= batch_->size()) {
      auto batch = std::make_shared<ColumnRows>();
      if (!column_ || !column_->next(*batch)) return std::nullopt;
      taken_ += batch->taken;
      batch_ = std::move(batch), at_ = 0;
    }
    const size_t begin = at_;
    const int64_t first = batch_->begin_of(begin);
    const int64_t width = holds_tokens() ? sizeof(int32_t) : 1;
    while (at_ < batch_->size() && (batch_->ends[at_] - first) * width < static_cast<int64_t>(part_)) ++at_;
    at_ = std::min(std::max(at_, begin + 1), batch_->size());
    const int64_t last = batch_->ends[at_ - 1];
    auto some = std::make_shared<SomeRows>(SomeRows{batch_, begin, at_});
    CorpusPart part{.first_line = batch_->first + static_cast<int64_t>(begin) + 1,
                    .taken = at_ == batch_->size() ? std::exchange(taken_, 0) : 0};
    if (!holds_tokens())
      part.bytes = std::string_view(batch_->bytes)
                       .substr(static_cast<size_t>(first), static_cast<size_t>(last - first));
    part.keeps = std::move(some);
    return part;
  }

  void each_document(const CorpusPart& part, const std::function<void(const Document&)>& use,
                     const std::function<void(const BadDocument&)>& bad) const override {
    const auto& some = *static_cast<const SomeRows*>(part.keeps.get());
    const ColumnRows& rows = *some.rows;
    for (size_t row = some.begin; row < some.end; ++row) {
      const auto where = [&] {
        return fmt::format("{} row {}", file_, rows.first + static_cast<int64_t>(row) + 1);
      };
      if (rows.null[row]) {
        bad({278, fmt::format("{} has nothing in its column \"{}\" (null)", where(), field_)});
      } else if (holds_tokens()) {
        const auto all = std::span(rows.tokens);
        use({.text = {},
             .begins = true,
             .ends = true,
             .tokens = all.subspan(static_cast<size_t>(rows.begin_of(row)),
                                   static_cast<size_t>(rows.ends[row] - rows.begin_of(row)))});
      } else if (const auto fault = unusable(rows.text(row), {}); fault) {
        bad(*unusable(rows.text(row), where()));
      } else {
        use({.text = rows.text(row), .begins = true, .ends = true});
      }
    }
  }

 private:
  std::string file_, field_;
  size_t part_;
  int64_t size_, taken_ = 0;
  std::unique_ptr<Column> column_;           // null: an empty file, which has no documents
  std::shared_ptr<const ColumnRows> batch_;  // of which the rows from at_ on are left
  size_t at_ = 0;
};

template <ColumnForm kForm>
std::unique_ptr<CorpusReader> open(const std::string& file, const CorpusOptions& options) {
  return std::make_unique<ColumnCorpus>(file, options, kForm);
}

}  // namespace

CorpusFormat parquet_corpus() {
  return {.name = "Parquet", .endings = {".parquet"}, .begins = "PAR1", .open = open<ColumnForm::parquet>};
}

CorpusFormat arrow_corpus() {
  return {.name = "Arrow",
          .endings = {".arrow", ".feather"},
          .begins = "ARROW1",
          .open = open<ColumnForm::arrow_file>};
}

// A stream begins with a mark and the length of its first message.
CorpusFormat arrow_stream_corpus() {
  return {.name = "Arrow stream",
          .endings = {".arrows"},
          .begins = "\xff\xff\xff\xff",
          .open = open<ColumnForm::arrow_stream>};
}

}  // namespace lockstep::data
