#include "lockstep/checkpoint/formats/safetensors.h"

#include <gtest/gtest.h>

#include "lockstep/base/file.h"
#include "lockstep/base/temporary_folder.h"
#include "lockstep/checkpoint/saving/file_writer.h"
#include "lockstep/checkpoint/testing.h"

namespace lockstep::checkpoint {
namespace {

using device::DType;

// A file with this header and so many bytes of data.
std::string file_of(const std::string& header, size_t data_bytes) {
  const uint64_t length = header.size();
  std::string file(8, '\0');
  std::memcpy(file.data(), &length, 8);
  return file + header + std::string(data_bytes, 'd');
}

TEST(Safetensors, ReadsBackEveryTypeAndShape) {
  base::TemporaryFolder folder;
  Tensors memory;
  std::vector<HostTensor> tensors;
  uint64_t seed = 1;
  for (const DType type :
       {DType::f32, DType::bf16, DType::f16, DType::f64, DType::i32, DType::i64, DType::u8}) {
    for (const device::Shape& shape :
         {device::Shape{}, device::Shape{3}, device::Shape{0, 7}, device::Shape{2, 3, 5, 1}}) {
      tensors.push_back({std::string("t/\"é\n") + std::to_string(seed), memory.make(type, shape, seed)});
      ++seed;
    }
  }
  const std::string path = folder.path() + "/x.safetensors";
  const FileSummary written = write_safetensors(path, tensors, {{"format", "pt"}, {"note", "\"quoted\""}});

  const SafetensorsFile file(path);
  EXPECT_NE(base::read_file(path).find(R"("__metadata__":{"format":"pt","note":"\"quoted\""})"),
            std::string::npos);
  ASSERT_EQ(file.entries().size(), tensors.size());
  int64_t at = -1;
  for (const HostTensor& one : tensors) {
    const auto& entry = file.entries().at(one.name);
    EXPECT_EQ(entry.dtype, one.tensor.dtype);
    ASSERT_EQ(static_cast<int>(entry.shape.size()), one.tensor.shape.rank());
    for (int i = 0; i < one.tensor.shape.rank(); ++i)
      EXPECT_EQ(entry.shape[static_cast<size_t>(i)], one.tensor.shape[i]);
    EXPECT_EQ(tensor_bytes(file, entry),
              std::string_view(one.tensor.as<char>(), static_cast<size_t>(one.tensor.bytes())));
    if (at < 0) {
      EXPECT_EQ(entry.begin % 8, 0);
    } else {
      EXPECT_EQ(entry.begin, at);  // in the given order, without gaps
    }
    at = entry.end;
  }
  EXPECT_EQ(written.name, "x.safetensors");
  EXPECT_EQ(written.bytes, static_cast<int64_t>(base::read_file(path).size()));
  EXPECT_NO_THROW(SafetensorsFile(path, written).file().check_all());
}

TEST(Safetensors, ChecksumsAreMadeWhileWriting) {
  base::TemporaryFolder folder;
  Tensors memory;
  const int64_t piece = kChunkBytes;
  const std::vector<HostTensor> tensors = {{"a", memory.make(DType::u8, {3}, 1)},
                                           {"b", memory.make(DType::u8, {2 * piece + 5}, 2)},
                                           {"c", memory.make(DType::u8, {piece - 100}, 3)}};
  const FileSummary written = write_safetensors(folder.path() + "/x", tensors, {});
  const SafetensorsFile file(folder.path() + "/x", written);
  EXPECT_EQ(std::memcmp(tensor_bytes(file, file.entries().at("b")).data(), tensors[1].tensor.data,
                        static_cast<size_t>(2 * piece + 5)),
            0);
  EXPECT_EQ(written.sums.size(), 4u);
}

TEST(Safetensors, SavingANameTwiceIsABug) {
  const auto whole = [](const char* name) { return Whole{.name = name, .shape = {1}}; };
  EXPECT_NO_THROW(safetensors_header({whole("a"), whole("b")}, {}));
  EXPECT_THROW(safetensors_header({whole("a"), whole("a")}, {}), base::Bug);
  EXPECT_THROW(safetensors_header({whole("__metadata__")}, {}), base::Bug);
}

struct Hostile {
  const char* header;
  size_t data_bytes;
  int number;
  const char* says;
};

// One tensor "a" of 8 bytes, with one thing wrong.
const Hostile kHostile[] = {
    {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]})", 8, 301, "is not JSON at byte"},
    {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}} x)", 8, 301, "is not JSON at byte"},
    {R"([])", 0, 301, "does not begin with {"},
    {"", 0, 301, "does not begin with {"},
    {"{\"a\xff\":{}}", 0, 301, "is not JSON"},
    {"{\"a\xed\xa0\x80\":{}}", 0, 301, "is not JSON"},  // a surrogate in UTF-8
    {R"({"a":[[[[[[[[[[1]]]]]]]]]]})", 0, 301, "nested deeper"},
    {R"({"a":{"dtype":"F32","shape":[1e999],"data_offsets":[0,8]}})", 8, 301, "out of range"},
    {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
     8, 301, R"(names "a" twice)"},
    {R"({"a":{"dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 8, 301, R"("dtype" twice)"},
    {R"({"__metadata__":[]})", 0, 301, "__metadata__ is not an object"},
    {R"({"__metadata__":{"k":1}})", 0, 301, R"("k" is not a string)"},
    {R"({"a":7})", 8, 302, R"(tensor "a" has an entry)"},
    {R"({"a":{"shape":[2],"data_offsets":[0,8]}})", 8, 302, R"(tensor "a" has no dtype)"},
    {R"({"a":{"dtype":"F33","shape":[2],"data_offsets":[0,8]}})", 8, 302, R"(unknown dtype "F33")"},
    {R"({"a":{"dtype":3,"shape":[2],"data_offsets":[0,8]}})", 8, 302, "has no dtype"},
    {R"({"a":{"dtype":"F32","data_offsets":[0,8]}})", 8, 302, "has no shape"},
    {R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", 8, 302, "other than sizes"},
    {R"({"a":{"dtype":"F32","shape":[2.0],"data_offsets":[0,8]}})", 8, 302, "other than sizes"},
    {R"({"a":{"dtype":"F32","shape":["2"],"data_offsets":[0,8]}})", 8, 302, "other than sizes"},
    {R"({"a":{"dtype":"F32","shape":[9223372036854775808],"data_offsets":[0,8]}})", 8, 302,
     "other than sizes"},
    {R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,8]}})", 8, 302,
     "impossibly large"},
    {R"({"a":{"dtype":"U8","shape":[2,9223372036854775804],"data_offsets":[0,8]}})", 8, 302,
     "impossibly large"},
    {R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", 8, 302,
     "needs 12 bytes, but its range has 8"},
    {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4, 302,
     "needs 8 bytes, but its range has 4"},
    {R"({"a":{"dtype":"F32","shape":[2]}})", 8, 302, "no valid data_offsets"},
    {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8]}})", 8, 302, "no valid data_offsets"},
    {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8,8]}})", 8, 302, "no valid data_offsets"},
    {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", 8, 302, "no valid data_offsets"},
    {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[-8,0]}})", 8, 302, "no valid data_offsets"},
    {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 7, 302, "ends at byte 8 of 7"},
    {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[9223372036854775799,9223372036854775807]}})", 8, 302,
     "ends at byte"},
    {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 9, 301, "1 bytes after its last tensor"},
    {R"({})", 1, 301, "1 bytes after its last tensor"},
    {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})",
     12, 302, R"(tensor "b" overlaps)"},
    {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
     8, 302, "overlaps"},
    {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"U8","shape":[0],"data_offsets":[4,4]}})",
     8, 302, R"(tensor "b" overlaps)"},
    {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})", 12, 302, R"(tensor "a" leaves a gap)"},
    {R"({"evil\u001b[2J":7})", 0, 302, R"("evil\u001B[2J")"},  // no escape reaches the terminal
};

TEST(Safetensors, RefusesHostileHeaders) {
  base::TemporaryFolder folder;
  for (const Hostile& row : kHostile) {
    SCOPED_TRACE(row.header);
    const std::string path = folder.write("hostile.safetensors", file_of(row.header, row.data_bytes));
    const std::string text = refusal(row.number, [&] { SafetensorsFile file(path); });
    EXPECT_NE(text.find(row.says), std::string::npos) << text;
    EXPECT_NE(text.find(path), std::string::npos) << text;
  }
}

TEST(Safetensors, RefusesHostileLengths) {
  base::TemporaryFolder folder;
  const std::string good = file_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}  )", 8);
  SafetensorsFile(folder.write("good", good));
  for (size_t size = 0; size < good.size(); ++size) {  // every truncation
    const std::string path = folder.write("cut", good.substr(0, size));
    EXPECT_THROW(SafetensorsFile file(path), base::DataError) << size;
  }
  for (const uint64_t length :
       {uint64_t{good.size() - 7}, uint64_t{100'000'001}, uint64_t{1} << 63, ~uint64_t{0}, ~uint64_t{7}}) {
    std::string bad = good;
    std::memcpy(bad.data(), &length, 8);
    const std::string path = folder.write("long", bad);
    EXPECT_NE(refusal(301, [&] { SafetensorsFile file(path); }).find(std::to_string(length)),
              std::string::npos);
  }
  refusal(810, [&] { SafetensorsFile file(folder.path() + "/none"); });
  refusal(812, [&] { SafetensorsFile file(folder.path()); });
}

TEST(Safetensors, DeepAndWideHeadersCostLittle) {
  base::TemporaryFolder folder;
  const std::string deep = folder.write("deep", file_of("{\"a\":" + std::string(2'000'000, '['), 0));
  EXPECT_NE(refusal(301, [&] { SafetensorsFile file(deep); }).find("nested"), std::string::npos);
  std::string wide_header = "{\"a\":[0";
  for (int i = 0; i < 9'000'000; ++i) wide_header += ",0";
  const std::string wide = folder.write("wide", file_of(wide_header + "]}", 0));
  EXPECT_NE(refusal(301, [&] { SafetensorsFile file(wide); }).find("more than"), std::string::npos);
}

TEST(Safetensors, AcceptsWhatOthersWrite) {
  base::TemporaryFolder folder;
  // Out of order, empty tensors, no metadata, padding, a BOOL mask, unknown members.
  const std::string path = folder.write(
      "x",
      file_of(R"({"b":{"dtype":"BOOL","shape":[4],"data_offsets":[8,12]},"e":{"dtype":"F32","shape":[0],)"
              R"("data_offsets":[8,8]},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"more":1}}    )",
              12));
  const SafetensorsFile file(path);
  EXPECT_EQ(file.entries().size(), 3u);
  EXPECT_EQ(file.entries().at("b").dtype, DType::u8);
  SafetensorsFile empty(folder.write("empty", file_of("{}", 0)));
  EXPECT_TRUE(empty.entries().empty());
}

}  // namespace
}  // namespace lockstep::checkpoint
