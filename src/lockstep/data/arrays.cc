// Samples as two NumPy arrays in a folder: inputs.npy [samples, ...] and labels.npy [samples, ...].
//
//     np.save("digits/inputs.npy", pictures.astype(np.float32)); np.save("digits/labels.npy", digits)
//     lockstep train model.module=net.pt data.kind=arrays data.path=digits
//
// Floats stay floats (to 32 bits), integers become token numbers or classes. Row i of both is sample i. Files
// are read where they lie, a row at a time, so they may be larger than memory.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <filesystem>
#include <limits>
#include <type_traits>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/hash.h"
#include "lockstep/data/formats/npy.h"
#include "lockstep/data/formats/parallel.h"
#include "lockstep/data/kind.h"
#include "lockstep/data/tokens/windows.h"
#include "lockstep/data/typed_words.h"
#include "lockstep/kernels/loss/loss.h"

namespace lockstep::data {
namespace {

using device::DType;

// Values of a .npy type as 32-bit words; false: one of them has no such word.
template <class Value>
bool to_words(const std::byte* from, std::span<int32_t> words) {
  bool good = true;
  for (size_t i = 0; i < words.size(); ++i) {
    Value value;
    std::memcpy(&value, from + i * sizeof value, sizeof value);
    if constexpr (std::is_floating_point_v<Value>) {
      words[i] = std::bit_cast<int32_t>(static_cast<float>(value));
    } else {
      good = good && std::in_range<int32_t>(value);
      words[i] = static_cast<int32_t>(value);
    }
  }
  return good;
}

struct Type {
  std::string_view name;
  int width;
  DType word;
  bool (*read)(const std::byte*, std::span<int32_t>);
};
constexpr Type kTypes[] = {
    {"<f4", 4, DType::f32, to_words<float>},   {"<f8", 8, DType::f32, to_words<double>},
    {"|u1", 1, DType::i32, to_words<uint8_t>}, {"|i1", 1, DType::i32, to_words<int8_t>},
    {"|b1", 1, DType::i32, to_words<uint8_t>}, {"<u2", 2, DType::i32, to_words<uint16_t>},
    {"<i2", 2, DType::i32, to_words<int16_t>}, {"<u4", 4, DType::i32, to_words<uint32_t>},
    {"<i4", 4, DType::i32, to_words<int32_t>}, {"<u8", 8, DType::i32, to_words<uint64_t>},
    {"<i8", 8, DType::i32, to_words<int64_t>},
};

[[noreturn]] void refuse(const std::string& path, const std::string& why) {
  throw base::DataError(298, fmt::format("{} {}", path, why));
}

// One array: rows of the same number of words.
class Rows {
 public:
  // Integers below `least` are refused when they are read.
  Rows(const std::string& path, int32_t least) : file_(base::MappedFile::open(path)), least_(least) {
    if (!is_npy(file_)) refuse(path, "is no .npy file; save it with np.save");
    const NpyHeader header = read_npy_header(file_);
    data_ = header.data;
    shape_ = header.shape_text;
    for (const Type& type : kTypes) {
      if (type.name == header.type) type_ = &type;
    }
    if (type_ == nullptr)
      refuse(path,
             fmt::format("contains values of type '{}'; save them as float32 or as integers", header.type));
    if (header.shape.empty())
      refuse(path, "contains a single value; its first dimension must be the samples");
    rows_ = header.shape.front();
    if (rows_ == 0) refuse(path, "has no samples");
    int64_t bytes = type_->width;
    for (const int64_t size : header.shape) {
      if (size > 0 && bytes > std::numeric_limits<int64_t>::max() / size)
        refuse(path, "has an impossible shape");
      bytes *= size;
    }
    if (bytes != file_.size() - data_) {
      refuse(path,
             fmt::format("has {} bytes of values, but its header promises {}: it was truncated or modified",
                         file_.size() - data_, bytes));
    }
    words_ = rows_ > 0 ? bytes / type_->width / rows_ : 0;
    constexpr int64_t kLongest = int64_t{1} << 24;
    if (words_ < 1 || words_ > kLongest)
      refuse(path, fmt::format("has {} values per sample; expected 1 to {}", words_, kLongest));
  }

  int64_t rows() const { return rows_; }
  int64_t words() const { return words_; }
  DType word() const { return type_->word; }
  std::string describe() const { return fmt::format("{} {}", shape_, type_->name.substr(1)); }

  void read(int64_t row, std::span<int32_t> out) const {
    const int64_t bytes = words_ * type_->width;
    std::vector<std::byte> raw(static_cast<size_t>(bytes));
    file_.read(data_ + row * bytes, raw);
    if (!type_->read(raw.data(), out))
      refuse(file_.path(), fmt::format("contains in row {} an integer that does not fit 32 bits", row));
    if (word() != DType::i32) return;
    const int32_t smallest = *std::min_element(out.begin(), out.end());
    if (smallest < least_)
      refuse(file_.path(), fmt::format("contains {} in row {}; integers start at {}{}", smallest, row, least_,
                                       least_ < 0 ? ", which marks a label that does not count" : ""));
  }

  // The largest word; of floats nothing is asked. All of it is read, in parallel.
  int64_t largest() const {
    if (word() == DType::f32) return 0;
    constexpr int64_t kRows = 1024;
    std::vector<int64_t> found(static_cast<size_t>((rows_ + kRows - 1) / kRows), 0);
    parallel_for(static_cast<int64_t>(found.size()), [&](int64_t piece) {
      std::vector<int32_t> words(static_cast<size_t>(words_));
      for (int64_t row = piece * kRows; row < std::min(rows_, (piece + 1) * kRows); ++row) {
        read(row, words);
        int64_t& most = found[static_cast<size_t>(piece)];
        most = std::max<int64_t>(most, *std::max_element(words.begin(), words.end()));
      }
    });
    return found.empty() ? 0 : *std::max_element(found.begin(), found.end());
  }

  uint64_t hash() const { return base::hash_bytes(file_.bytes()); }

 private:
  base::MappedFile file_;
  int32_t least_;
  int64_t data_ = 0, rows_ = 0, words_ = 0;
  std::string shape_;
  const Type* type_ = nullptr;
};

struct Pair {
  Rows inputs, labels;
  explicit Pair(const std::string& folder)
      : inputs(in(folder, "inputs.npy"), 0), labels(in(folder, "labels.npy"), kernels::kIgnoredLabel) {
    if (inputs.rows() != labels.rows()) {
      refuse(folder, fmt::format("has {} rows in inputs.npy and {} in labels.npy; row i of both is sample i",
                                 inputs.rows(), labels.rows()));
    }
  }

  static std::string in(const std::string& folder, const char* file) {
    const std::filesystem::path path = std::filesystem::path(folder) / file;
    if (!std::filesystem::exists(path)) refuse(folder, fmt::format("has no {}", file));
    return path.string();
  }
};

class Arrays final : public Dataset, public TypedWords {
 public:
  Arrays(const recipe::Recipe::Data& data, Use use) : path_(data.path) {
    if (data.path.empty())
      throw base::ConfigError(201,
                              "data.kind = \"arrays\" reads files; set data.path to a folder with "
                              "inputs.npy and labels.npy");
    if (use == Use::train) {
      train_.emplace(data.path);
      count_ = train_->inputs.rows();
      if (data.eval_path.empty()) {
        held_out_ = held_out(count_, data.eval_fraction);
        count_ -= held_out_;
      }
    }
    if (use == Use::evaluate || !data.eval_path.empty()) {
      eval_.emplace(data.eval_path.empty() ? data.path : data.eval_path);
      held_out_ = eval_->inputs.rows();
    }
    if (train_ && eval_) compare(data.eval_path);
    for (const auto& pair : {&train_, &eval_}) {
      if (!*pair) continue;
      vocab_ = std::max(vocab_, (*pair)->labels.largest() + 1);
      vocab_ = std::max(vocab_, (*pair)->inputs.largest() + 1);
    }
  }

  int64_t vocab() const override { return vocab_; }
  int64_t samples(Split split) const override { return split == Split::train ? count_ : held_out_; }
  int64_t inputs_per_sample(int64_t) const override { return any().inputs.words(); }
  int64_t labels_per_sample(int64_t) const override { return any().labels.words(); }
  DType input_type() const override { return any().inputs.word(); }
  DType label_type() const override { return any().labels.word(); }

  void read(Split split, int64_t index, std::span<int32_t> inputs, std::span<int32_t> labels) const override {
    const bool own = split == Split::eval && eval_.has_value();
    const Pair& from = own ? *eval_ : *train_;
    const int64_t row = split == Split::eval && !own ? count_ + index : index;
    from.inputs.read(row, inputs);
    from.labels.read(row, labels);
  }

  std::string describe() const override {
    return fmt::format("arrays {}: {} samples, inputs {}, labels {}", shown_path(path_), any().inputs.rows(),
                       any().inputs.describe(), any().labels.describe());
  }
  uint64_t content_hash() const override {
    uint64_t hash = 0;
    for (const auto& pair : {&train_, &eval_}) {
      hash = base::hash_combine(hash, *pair ? (*pair)->inputs.hash() : 0);
      hash = base::hash_combine(hash, *pair ? (*pair)->labels.hash() : 0);
    }
    return hash;
  }

 private:
  const Pair& any() const { return train_ ? *train_ : *eval_; }

  void compare(const std::string& eval_path) const {
    const auto same = [](const Rows& a, const Rows& b) {
      return a.words() == b.words() && a.word() == b.word();
    };
    if (!same(train_->inputs, eval_->inputs) || !same(train_->labels, eval_->labels))
      refuse(eval_path, "has samples of another shape or type than data.path");
  }

  std::string path_;
  std::optional<Pair> train_, eval_;
  int64_t count_ = 0, held_out_ = 0, vocab_ = 1;
};

}  // namespace

DatasetKind arrays_kind() {
  return {.name = "arrays",
          .describe = "samples and labels as NumPy arrays, for models of your own",
          .reads = {"data.path", "data.eval_path", "data.eval_fraction"},
          .open = [](const recipe::Recipe& recipe, Use use) -> std::unique_ptr<Dataset> {
            return std::make_unique<Arrays>(recipe.data, use);
          }};
}

}  // namespace lockstep::data
