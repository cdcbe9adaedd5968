#include "lockstep/data/formats/npy.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

#include "lockstep/base/refusal.h"
#include "lockstep/data/dataset.h"
#include "lockstep/data/test_folder.h"

namespace lockstep::data {
namespace {

// As np.save writes it: magic number, version, length of the header, and the header padded to 64 bytes.
std::string npy(const std::string& descr, const std::string& shape, const std::string& data,
                const std::string& order = "False", int version = 1) {
  std::string header =
      fmt::format("{{'descr': '{}', 'fortran_order': {}, 'shape': {}, }}", descr, order, shape);
  const size_t before = version == 1 ? 10 : 12;
  header.append(63 - (before + header.size()) % 64, ' ');
  header += '\n';
  std::string length(version == 1 ? 2 : 4, '\0');
  for (size_t k = 0; k < length.size(); ++k) length[k] = static_cast<char>(header.size() >> (8 * k));
  return std::string("\x93NUMPY") + static_cast<char>(version) + '\0' + length + header + data;
}

template <class Word>
std::string words(int64_t count) {
  std::vector<Word> values;
  for (int64_t k = 0; k < count; ++k) values.push_back(static_cast<Word>(k % 100));
  return bytes_of(values);
}

recipe::Recipe recipe_for(const std::string& path) {
  recipe::Recipe recipe;
  recipe.data.kind = "tokens";
  recipe.data.seq_len = 4;
  recipe.data.eval_fraction = 0;
  recipe.data.path = path;
  return recipe;
}

TEST(Npy, ReadsWhatNumpySaves) {
  struct Row {
    const char* descr;
    std::string data;
    int version;
  };
  for (const Row& row : std::initializer_list<Row>{{"|u1", words<uint8_t>(205), 1},
                                                   {"<u2", words<uint16_t>(205), 1},
                                                   {"<u4", words<uint32_t>(205), 2},
                                                   {"<i4", words<int32_t>(205), 1},
                                                   {"<i8", words<int64_t>(205), 3},
                                                   {"<u8", words<uint64_t>(205), 1}}) {
    SCOPED_TRACE(row.descr);
    TestFolder folder;
    const std::string path =
        folder.write("tokens.npy", npy(row.descr, "(205,)", row.data, "False", row.version));
    const auto dataset = open_dataset(recipe_for(path));
    EXPECT_EQ(dataset->vocab(), 100);
    EXPECT_EQ(dataset->samples(Split::train), 51);
    std::vector<int32_t> inputs(4), labels(4);
    dataset->read(Split::train, 30, inputs, labels);
    EXPECT_EQ(inputs, (std::vector<int32_t>{20, 21, 22, 23}));
    EXPECT_EQ(labels, (std::vector<int32_t>{21, 22, 23, 24}));
    EXPECT_NE(dataset->content_hash(), 0u);
  }
}

TEST(Npy, RefusesTheRest) {
  const std::string data = words<uint16_t>(100);
  const std::string whole = npy("<u2", "(100,)", data);
  struct Row {
    std::string bytes;
    int number;
    const char* says;
  };
  const std::vector<Row> rows = {
      {npy("<f4", "(50,)", data), 235, "astype"},
      {npy(">u2", "(100,)", data), 235, "astype"},
      {npy("|O", "(100,)", data), 235, "astype"},
      {npy("<u2", "(10, 10)", data), 235, "reshape(-1)"},
      {npy("<u2", "()", data), 235, "reshape(-1)"},
      {npy("<u2", "(-1,)", data), 235, "np.save"},
      {npy("<u2", "(101,)", data), 235, "truncated"},
      {npy("<u2", "(99,)", data), 235, "truncated"},
      {npy("<u2", "(9223372036854775807,)", data), 235, "truncated"},
      {npy("<u2", "(99999999999999999999,)", data), 235, "np.save"},
      {whole.substr(0, 40), 235, "inside its .npy header"},
      {whole.substr(0, 6), 235, "version"},
      {std::string("\x93NUMPY\x09\0\x10\0", 10) + std::string(16, ' '), 235, "version 9"},
      {std::string("\x93NUMPY\x01\0\x10\0", 10) + std::string(16, ' '), 235, "np.save"},
      {npy("<i4", "(50,)", bytes_of(std::vector<int32_t>(50, -1))), 232, "contains token"},
      {npy("<i8", "(50,)", bytes_of(std::vector<int64_t>(50, -1))), 232, "contains token"},
      {"PK\x03\x04" + data, 236, "zip"},
      {"\x1f\x8b" + data, 236, "gzip"},
  };
  for (const Row& row : rows) {
    TestFolder folder;
    const std::string path = folder.write("tokens.npy", row.bytes);
    const std::string said = base::refusal(row.number, [&] { open_dataset(recipe_for(path)); });
    EXPECT_NE(said.find(row.says), std::string::npos) << said;
    EXPECT_NE(said.find("tokens.npy"), std::string::npos) << said;
  }
}

// Damaged headers are read or refused, never more.
TEST(Npy, SurvivesDamage) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937_64 random(seed);
  TestFolder folder;
  for (int round = 0; round < 300; ++round) {
    std::string bytes = npy("<u2", "(100,)", words<uint16_t>(100));
    for (int edits = 1 + static_cast<int>(random() % 4); edits > 0; --edits)
      bytes[6 + random() % 100] = static_cast<char>(random());
    bytes.resize(random() % 8 == 0 ? random() % bytes.size() : bytes.size());
    const std::string path = folder.write("tokens.npy", bytes);
    base::number_of_refusal([&] { open_dataset(recipe_for(path)); });
  }
}

}  // namespace
}  // namespace lockstep::data
