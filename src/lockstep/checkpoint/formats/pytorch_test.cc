// The files in tools/fuzz/seeds/pytorch were written by PyTorch itself.
#include "lockstep/checkpoint/formats/pytorch.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <functional>

#include "lockstep/base/file.h"
#include "lockstep/base/temporary_folder.h"
#include "lockstep/checkpoint/export.h"
#include "lockstep/checkpoint/formats/pickle.h"
#include "lockstep/checkpoint/testing.h"

namespace lockstep::checkpoint {
namespace {

using device::DType;
namespace fs = std::filesystem;

const std::string kSeeds = LOCKSTEP_SOURCE "/tools/fuzz/seeds/pytorch/";

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

std::vector<float> values_of(const Opened& opened, const std::string& name) {
  Whole tensor = opened.find(name);
  tensor.dtype = DType::f32;
  std::vector<float> values(static_cast<size_t>(tensor.shape.numel()));
  opened.read({{whole_piece(tensor), values.data()}});
  return values;
}

TEST(Pytorch, ReadsWhatTorchSaves) {
  for (const char* file : {"zip.bin", "protocol4.bin", "old.bin"}) {
    SCOPED_TRACE(file);
    base::TemporaryFolder folder;
    folder.write("pytorch_model.bin", base::read_file(kSeeds + file));
    const Opened opened(folder.path());
    const std::vector<float> dense = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
    EXPECT_EQ(values_of(opened, "dense"), dense);
    EXPECT_EQ(values_of(opened, "tied"), dense) << "shares the storage";
    EXPECT_EQ(opened.find("transposed").shape, (device::Shape{4, 3}));
    EXPECT_EQ(values_of(opened, "transposed"), (std::vector<float>{0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11}));
    EXPECT_EQ(values_of(opened, "inside"),
              (std::vector<float>{10, 11, 12, 13, 18, 19, 20, 21, 26, 27, 28, 29}));
    EXPECT_EQ(opened.find("bf16").dtype, DType::bf16);
    EXPECT_EQ(values_of(opened, "bf16"), (std::vector<float>{1.5, -2}));
    EXPECT_EQ(values_of(opened, "fp16"), (std::vector<float>{0.5, 3}));
    EXPECT_EQ(values_of(opened, "parameter"), (std::vector<float>{7, 8}));
    EXPECT_EQ(opened.find("mask").dtype, DType::u8);
    EXPECT_EQ(values_of(opened, "scalar"), (std::vector<float>{4}));
    EXPECT_EQ(opened.find("empty").shape, (device::Shape{0, 3}));
    EXPECT_TRUE(opened.same("dense", "tied"));
    EXPECT_FALSE(opened.same("bf16", "fp16"));
  }
}

// Pieces of a view with strides, wherever they begin and end.
TEST(Pytorch, PartsOfAViewAreThoseOfTheWhole) {
  base::TemporaryFolder folder;
  folder.write("pytorch_model.bin", base::read_file(kSeeds + "zip.bin"));
  const Opened opened(folder.path());
  const std::vector<float> whole = values_of(opened, "transposed");
  const Piece piece = whole_piece(opened.find("transposed"));
  for (int64_t begin = 0; begin < 12; ++begin) {
    for (int64_t count = 1; begin + count <= 12; ++count) {
      std::vector<float> part(static_cast<size_t>(count));
      opened.read({{part_of(piece, begin, count), part.data()}});
      EXPECT_EQ(part, std::vector<float>(whole.begin() + begin, whole.begin() + begin + count));
    }
  }
}

TEST(Pytorch, ShardsHaveAnIndexAndExportAsSafetensors) {
  base::TemporaryFolder folder;
  folder.write("one.bin", base::read_file(kSeeds + "zip.bin"));
  folder.write("two.bin", base::read_file(kSeeds + "module.bin"));
  folder.write("pytorch_model.bin.index.json",
               R"({"weight_map": {"dense": "one.bin", "transposed": "one.bin", "weight": "two.bin"}})");
  const Opened opened(folder.path());
  EXPECT_EQ(opened.names(), (std::vector<std::string>{"dense", "transposed", "weight"}));
  EXPECT_EQ(opened.find("weight").shape, (device::Shape{1, 2}));
  export_model(opened, folder.path() + "/out", std::nullopt);
  const Opened again(folder.path() + "/out");
  for (const std::string& name : opened.names()) EXPECT_EQ(values_of(again, name), values_of(opened, name));
  folder.write("pytorch_model.bin.index.json", R"({"weight_map": {"nowhere": "one.bin"}})");
  EXPECT_TRUE(has(refusal(303, [&] { Opened{folder.path()}; }), "but that file does not contain it"));
}

TEST(Pytorch, WhatAsksForMoreThanWeightsIsNamedAndNotRun) {
  EXPECT_TRUE(has(refusal(313, [] { PytorchFile(kSeeds + "evil.bin"); }), "asks for \"posix.system\""));
  EXPECT_TRUE(has(refusal(313, [] { PytorchFile(kSeeds + "whole.bin"); }),
                  "asks for \"torch.nn.modules.linear.Linear\""));
}

TEST(Pytorch, EveryCutAndEveryChangedByteIsReadOrRefused) {
  base::TemporaryFolder folder;
  for (const char* file : {"module.bin", "old.bin"}) {
    const std::string good = base::read_file(kSeeds + file);
    for (size_t size = 0; size < good.size(); size += 7) {
      const std::string path = folder.write("cut", good.substr(0, size));
      const int number = base::number_of_refusal([&] { PytorchFile{path}; });
      EXPECT_TRUE(number == 312 || number == 313) << file << " cut at " << size << ": " << number;
    }
    for (size_t at = 0; at < good.size(); ++at) {
      std::string bad = good;
      bad[at] = static_cast<char>(bad[at] ^ 0x41);
      const std::string path = folder.write("changed", bad);
      const int number = base::number_of_refusal([&] { PytorchFile{path}; });
      EXPECT_TRUE(number == 0 || number == 312 || number == 313) << file << " at " << at << ": " << number;
    }
  }
}

// A pickle of one tensor "w" [sizes], [strides] over a storage of `elements` floats, as PyTorch writes it.
std::string small(unsigned char n) { return std::string("K") + static_cast<char>(n); }
std::string text(const std::string& s) {
  return "X" + std::string(1, static_cast<char>(s.size())) + std::string(3, '\0') + s;
}
std::string storage(unsigned char elements) {
  return "(" + text("storage") + "ctorch\nFloatStorage\n" + text("0") + text("cpu") + small(elements) + "tQ";
}
std::string pickled(const std::string& tensor) { return "\x80\x02}" + text("w") + tensor + "s."; }
std::string tensor_of(const std::string& sizes, const std::string& strides, unsigned char offset = 0) {
  return "ctorch._utils\n_rebuild_tensor_v2\n(" + storage(12) + small(offset) + sizes + strides + "\x89" +
         "ccollections\nOrderedDict\n)RtR";
}

// That pickle and 48 bytes as an archive.
std::string archive_of(const std::string& pickle) {
  const auto word = [](uint64_t value, int bytes) {
    std::string out;
    for (int k = 0; k < bytes; ++k) out += static_cast<char>(value >> 8 * k);
    return out;
  };
  std::string file, list;
  const std::pair<std::string, std::string> parts[] = {{"a/data.pkl", pickle},
                                                       {"a/data/0", std::string(48, 'x')}};
  for (const auto& [name, bytes] : parts) {
    const std::string sizes = word(bytes.size(), 4) + word(bytes.size(), 4);
    list += word(0x02014b50, 4) + std::string(16, '\0') + sizes + word(name.size(), 2) +
            std::string(12, '\0') + word(file.size(), 4) + name;
    file += word(0x04034b50, 4) + std::string(14, '\0') + sizes + word(name.size(), 2) + word(0, 2) + name +
            bytes;
  }
  return file + list + word(0x06054b50, 4) + std::string(4, '\0') + word(2, 2) + word(2, 2) +
         word(list.size(), 4) + word(file.size(), 4) + word(0, 2);
}

TEST(Pytorch, TensorsMustLieInTheirStorage) {
  base::TemporaryFolder folder;
  const auto says = [&](const std::string& tensor) {
    const std::string path = folder.write("x", archive_of(pickled(tensor)));
    return refusal(312, [&] { PytorchFile{path}; });
  };
  const auto two = [](unsigned char a, unsigned char b) { return small(a) + small(b) + "\x86"; };
  const std::string fine = folder.write("x", archive_of(pickled(tensor_of(two(3, 4), two(4, 1)))));
  EXPECT_EQ(PytorchFile(fine).entries().at("w").shape, (std::vector<int64_t>{3, 4}));
  EXPECT_TRUE(has(says(tensor_of(two(3, 5), two(5, 1))), "more elements than its storage"));
  EXPECT_TRUE(has(says(tensor_of(two(3, 4), two(0, 1), 9)), "lies outside its storage"));
  EXPECT_TRUE(has(says(tensor_of(two(3, 4), two(5, 1))), "lies outside its storage"));
  EXPECT_TRUE(has(says(tensor_of(two(2, 2), two(1, 1), 11)), "lies outside its storage"));
  EXPECT_TRUE(has(says(tensor_of(two(255, 255), two(0, 0))), "more elements than its storage"));
  const std::string huge = "\x8a\x08" + std::string("\x00\x00\x00\x00\x00\x00\x00\x40", 8);
  EXPECT_TRUE(has(says(tensor_of(small(2) + huge + "\x86", two(1, 1))), "more elements than its storage"));
  EXPECT_TRUE(has(says(tensor_of(two(2, 2), huge + huge + "\x86")), "lies outside its storage"));
}

TEST(Pytorch, HostilePicklesAreRefused) {
  const auto says = [](const std::string& bytes) {
    return refusal(313, [&] { Pickle(bytes, "x").tensors(); });
  };
  const std::pair<std::string, const char*> rows[] = {
      {"", "ends unexpectedly"},
      {"\x80\x09.", "unsupported protocol 9"},
      {"\x80\x02.", "does not end with exactly one value"},
      {"\x80\x02(.", "does not end with exactly one value"},
      {"\x80\x02K\x01K\x02.", "does not end with exactly one value"},
      {"\x80\x02R", "empty stack"},
      {"\x80\x02t", "empty stack"},
      {"\x80\x02)K\x01(s", "empty stack"},
      {"\x80\x02h\x07.", "reads a memo entry that was not written"},
      {"\x80\x02}K\x01r\xff\xff\xff\x7f.", "memoizes more"},
      {"\x80\x02X\xff\xff\xff\xff.", "ends unexpectedly"},
      {"\x80\x02"
       "cos\nsystem\n.",
       "asks for \"os.system\""},
      {"\x80\x02"
       "cbuiltins\neval\n.",
       "asks for \"builtins.eval\""},
      {"\x80\x02"
       "cposix\nsystem\nX\x02\0\0\0ls\x85R.",
       "asks for \"posix.system\""},
      {"\x80\x04\x8c\x02os\x8c\x06system\x93.", "asks for \"os.system\""},
      {"\x80\x02"
       "ctorch\nload\n.",
       "asks for \"torch.load\""},
      {"\x80\x02"
       "ccollections\nOrderedDict\n)\x81.",
       "opcode 0x81"},
      {"\x80\x02(cos\nsystem\no.", "asks for \"os.system\""},
      {"\x80\x02(ios\nsystem\n.", "opcode 0x69"},
      {"\x80\x02"
       "ctorch\nFloatStorage\n)R.",
       "calls a storage's type"},
      {"\x80\x02K\x01)R.", "calls something that is not a function"},
      {"\x80\x02K\x01}b.", "not a container"},
      {"\x80\x02K\x01.", "other than a dictionary"},
      {"\x80\x02}.", "no tensors at its top level"},
      {"\x80\x02}K\x01" + tensor_of(")", ")") + "s.", "name is not a string"},
      {"\x80\x02}(" + text("w") + tensor_of(")", ")") + text("w") + tensor_of(")", ")") + "u.", "twice"},
      {"\x80\x02}(K\x01u.", "a key without a value"},
      {pickled(tensor_of("K\x01", ")")), "other than integers"},
      {pickled(tensor_of("J\xff\xff\xff\xff\x85", "K\x01\x85")), "other than integers"},
      {pickled(tensor_of("K\x01\x85", ")")), "different numbers of sizes and strides"},
      {pickled("ctorch._utils\n_rebuild_tensor_v2\n)R"), "not a storage"},
      {pickled("(" + text("storage") + "tQ"), "in a way PyTorch never does"},
  };
  for (const auto& [bytes, why] : rows) EXPECT_TRUE(has(says(bytes), why)) << why << ": " << says(bytes);
}

// However deep or long a pickle is, it takes little memory and no stack.
TEST(Pytorch, DeepAndLongPicklesEnd) {
  const auto number = [](const std::string& bytes) {
    return base::number_of_refusal([&] { Pickle(bytes, "x").tensors(); });
  };
  EXPECT_EQ(number("\x80\x02)" + std::string(500'000, '\x85') + "."), 313);
  EXPECT_EQ(number("\x80\x02)" + std::string(5'000'000, '\x85') + "."), 313);
  EXPECT_EQ(number("\x80\x02" + std::string(5'000'000, '(') + "."), 313);
  EXPECT_EQ(number("\x80\x02]q" + std::string(1, '\0') + std::string(3'000'000, 'N')), 313);
}

}  // namespace
}  // namespace lockstep::checkpoint
