// A dataset: numbers that count up, and begin again behind the last. What follows is certain.
#include "extension.h"
#include "lockstep/data/kind.h"

namespace {

using namespace lockstep;

class Counting final : public data::Dataset {
 public:
  static constexpr int64_t kNumbers = 50;
  int64_t vocab() const override { return kNumbers; }
  int64_t samples(data::Split split) const override { return split == data::Split::train ? 4096 : 64; }
  void read(data::Split, int64_t index, std::span<int32_t> inputs, std::span<int32_t> labels) const override {
    for (size_t i = 0; i < inputs.size(); ++i) {
      inputs[i] = static_cast<int32_t>((index + static_cast<int64_t>(i)) % kNumbers);
      labels[i] = static_cast<int32_t>((inputs[i] + 1) % kNumbers);
    }
  }
  std::optional<double> entropy_floor() const override { return 0; }
  std::string describe() const override { return "counting to " + std::to_string(kNumbers); }
  uint64_t content_hash() const override { return kNumbers; }
};

}  // namespace

lockstep::data::DatasetKind counting_data() {
  return {.name = "counting",
          .describe = "numbers that count up",
          .makes = "numbers",
          .open = [](const recipe::Recipe&, data::Use) { return std::make_unique<Counting>(); }};
}
