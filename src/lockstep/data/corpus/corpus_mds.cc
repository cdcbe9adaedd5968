// MDS: a sample is a document, the text or the tokens of one column (mds.h).
#include <fmt/format.h>

#include <algorithm>

#include "lockstep/data/corpus/corpus.h"
#include "lockstep/data/formats/mds.h"

namespace lockstep::data {
namespace {

// Some samples of a shard.
struct SomeSamples {
  std::shared_ptr<const MdsData> data;
  int64_t begin, end;
};

class MdsCorpus final : public CorpusReader {
 public:
  MdsCorpus(const std::string& index, const CorpusOptions& options)
      : size_(mds_bytes(index)),
        part_(static_cast<int64_t>(options.part)),
        shards_(read_mds_index(index, options.field)) {}
  int64_t size() const override { return size_; }
  bool holds_tokens() const override { return !shards_.empty() && shards_.front().tokens; }

  std::optional<CorpusPart> next_part() override {
    while (!data_ || at_ >= data_->samples()) {
      if (next_ >= shards_.size()) return std::nullopt;
      data_ = std::make_shared<MdsData>(shards_[next_]);
      ++next_, at_ = 0;
    }
    const int64_t begin = at_, first = data_->begin_of(begin);
    while (at_ < data_->samples() && data_->begin_of(at_ + 1) - first < part_) ++at_;
    at_ = std::min(std::max(at_, begin + 1), data_->samples());
    CorpusPart part{.first_line = begin, .taken = stored(data_->begin_of(at_) - first)};
    part.keeps = std::make_shared<SomeSamples>(SomeSamples{data_, begin, at_});
    return part;
  }

  void each_document(const CorpusPart& part, const std::function<void(const Document&)>& use,
                     const std::function<void(const BadDocument&)>& bad) const override {
    const auto& some = *static_cast<const SomeSamples*>(part.keeps.get());
    std::vector<int32_t> tokens;
    for (int64_t sample = some.begin; sample < some.end; ++sample) {
      if (holds_tokens()) {
        tokens.clear();
        some.data->append_tokens(sample, tokens);
        use({.text = {}, .begins = true, .ends = true, .tokens = tokens});
        continue;
      }
      const std::string_view text = some.data->column_of(sample);
      if (unusable(text, {})) {
        bad(*unusable(text, fmt::format("{} sample {}", some.data->shard().file, sample)));
      } else {
        use({.text = text, .begins = true, .ends = true});
      }
    }
  }

 private:
  // Of so many unpacked bytes of a shard, those on the disk: all shards are packed alike, about.
  int64_t stored(int64_t bytes) const {
    double raw = 1;
    for (const MdsShard& shard : shards_) raw += static_cast<double>(shard.raw_bytes);
    return static_cast<int64_t>(static_cast<double>(bytes) * std::min(1.0, static_cast<double>(size_) / raw));
  }

  int64_t size_, part_;
  std::vector<MdsShard> shards_;
  size_t next_ = 0;
  std::shared_ptr<const MdsData> data_;
  int64_t at_ = 0;  // the first sample of it that is left
};

}  // namespace

CorpusFormat mds_corpus() {
  return {.name = "MDS",
          .endings = {"index.json"},
          .open = [](const std::string& file, const CorpusOptions& options) -> std::unique_ptr<CorpusReader> {
            return std::make_unique<MdsCorpus>(file, options);
          }};
}

}  // namespace lockstep::data
