#include <gtest/gtest.h>

#include <bit>

#include "lockstep/base/refusal.h"
#include "lockstep/data/dataset.h"
#include "lockstep/data/kind.h"
#include "lockstep/data/test_folder.h"
#include "lockstep/data/typed_words.h"

namespace lockstep::data {
namespace {

// As np.save writes it.
std::string npy(const std::string& type, const std::string& shape, const std::string& bytes,
                const std::string& order = "False") {
  std::string header = "{'descr': '" + type + "', 'fortran_order': " + order + ", 'shape': " + shape + ", }";
  header.append(63 - (10 + header.size()) % 64, ' ');
  header += '\n';
  const auto length = static_cast<unsigned>(header.size());
  return std::string("\x93NUMPY\x01") + '\0' + static_cast<char>(length & 255) +
         static_cast<char>(length >> 8) + header + bytes;
}

recipe::Recipe recipe_for(const std::string& path) {
  recipe::Recipe recipe;
  recipe.data.kind = "arrays";
  recipe.data.path = path;
  recipe.data.eval_fraction = 0;
  return recipe;
}

const std::string kInputs = bytes_of(std::vector<float>{0, 1, 2, 3, 4, 5, 6, 7});
const std::string kLabels = bytes_of(std::vector<int64_t>{2, 0, -1, 3});

TEST(Arrays, RowIOfBothIsSampleI) {
  TestFolder folder;
  folder.write("inputs.npy", npy("<f4", "(4, 1, 2)", kInputs));
  folder.write("labels.npy", npy("<i8", "(4,)", kLabels));
  const auto data = open_dataset(recipe_for(folder.path()));
  EXPECT_EQ(data->samples(Split::train), 4);
  EXPECT_EQ(data->inputs_per_sample(64), 2);
  EXPECT_EQ(data->labels_per_sample(64), 1);
  EXPECT_EQ(data->vocab(), 4);
  const auto& typed = dynamic_cast<const TypedWords&>(*data);
  EXPECT_EQ(typed.input_type(), device::DType::f32);
  EXPECT_EQ(typed.label_type(), device::DType::i32);
  std::vector<int32_t> inputs(2), labels(1);
  data->read(Split::train, 2, inputs, labels);
  EXPECT_EQ(std::bit_cast<float>(inputs[0]), 4.0f);
  EXPECT_EQ(std::bit_cast<float>(inputs[1]), 5.0f);
  EXPECT_EQ(labels[0], -1);
}

TEST(Arrays, TheLastOnesAreHeldOut) {
  TestFolder folder;
  folder.write("inputs.npy", npy("<f8", "(4, 1)", bytes_of(std::vector<double>{0.5, 1.5, 2.5, 3.5})));
  folder.write("labels.npy", npy("<f4", "(4, 1)", bytes_of(std::vector<float>{1, 2, 3, 4})));
  recipe::Recipe recipe = recipe_for(folder.path());
  recipe.data.eval_fraction = 0.25;
  const auto data = open_dataset(recipe);
  EXPECT_EQ(data->samples(Split::train), 3);
  ASSERT_EQ(data->samples(Split::eval), 1);
  std::vector<int32_t> inputs(1), labels(1);
  data->read(Split::eval, 0, inputs, labels);
  EXPECT_EQ(std::bit_cast<float>(inputs[0]), 3.5f);
  EXPECT_EQ(std::bit_cast<float>(labels[0]), 4.0f);
}

TEST(Arrays, BadFilesAreRefusedByName) {
  struct Row {
    const char* says;
    std::string inputs, labels;
  };
  const std::string good = npy("<f4", "(4, 2)", kInputs), labels = npy("<i8", "(4,)", kLabels);
  for (const Row& row : std::initializer_list<Row>{
           {"4 rows in inputs.npy and 3", good, npy("<i8", "(3,)", kLabels.substr(8))},
           {"no .npy file", "garbage", labels},
           {"'<c8'", npy("<c8", "(4,)", kInputs), labels},
           {"truncated", npy("<f4", "(4, 2)", kInputs.substr(4)), labels},
           {"impossible shape", npy("<f4", "(4, 4611686018427387904, 8)", kInputs), labels},
           {"single value", npy("<f4", "()", kInputs.substr(0, 4)), labels},
           {"has no samples", npy("<f4", "(0, 2)", ""), npy("<i8", "(0,)", "")},
           {"Fortran", npy("<f4", "(4, 2)", kInputs, "True"), labels},
           {"32 bits", good, npy("<i8", "(4,)", bytes_of(std::vector<int64_t>{1, 2, int64_t{1} << 40, 0}))},
           {"-7 in row 1", good, npy("<i8", "(4,)", bytes_of(std::vector<int64_t>{1, -7, 1, 0}))},
       }) {
    TestFolder folder;
    folder.write("inputs.npy", row.inputs);
    folder.write("labels.npy", row.labels);
    std::string said;
    try {
      open_dataset(recipe_for(folder.path()));
    } catch (const base::DataError& error) {
      said = error.what();
    }
    EXPECT_NE(said.find(row.says), std::string::npos) << row.says << ": " << said;
  }
  TestFolder empty;
  EXPECT_NE(base::refusal(298, [&] { open_dataset(recipe_for(empty.path())); }).find("inputs.npy"),
            std::string::npos);
}

}  // namespace
}  // namespace lockstep::data
