#include "lockstep/data/formats/unpack.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

#include "lockstep/base/refusal.h"
#include "lockstep/data/documents/packing_testing.h"
#include "lockstep/data/formats/text_parts.h"
#include "lockstep/data/test_folder.h"

namespace lockstep::data {
namespace {

std::string unpacked(const std::string& file, size_t at_once) {
  std::string all, buffer(at_once, '\0');
  const auto source = open_packed(file);
  while (const size_t count = source->read(buffer)) all += buffer.substr(0, count);
  return all;
}

std::string random_text(std::mt19937_64& random, size_t size) {
  std::string text;
  while (text.size() < size) text += fmt::format("{} ", random() % 1000);
  return text.substr(0, size);
}

using Pack = std::string (*)(const std::string&);
struct Packing {
  const char* name;
  Pack pack;
  const char* ending;
};
constexpr Packing kPackings[] = {{"gzip", gzip, ".gz"}, {"zstd", zstd, ".zst"}};

TEST(Unpack, GivesBackWhatWasPackedInAnyNumberOfMembers) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937_64 random(seed);
  TestFolder folder;
  for (const Packing& packing : kPackings) {
    for (const size_t members : {1, 2, 5}) {
      std::string text, packed;
      for (size_t i = 0; i < members; ++i) {
        const std::string member = random_text(random, i == 1 ? 0 : 1 + random() % 700000);
        text += member, packed += packing.pack(member);
      }
      const std::string file = folder.write("a.txt", packed);
      EXPECT_TRUE(is_packed(file));
      for (const size_t at_once : {size_t{1000}, size_t{1} << 20})
        EXPECT_EQ(unpacked(file, at_once), text) << packing.name;
      EXPECT_EQ(first_bytes_of(file, 100), text.substr(0, 100));
    }
  }
  EXPECT_EQ(unpacked(folder.write("padded.gz", gzip("text") + std::string(1000, '\0')), 10), "text");
}

TEST(Unpack, SaysWhereAFileIsCutOrDamaged) {
  std::mt19937_64 random(7);
  const std::string text = random_text(random, 300000);
  TestFolder folder;
  for (const Packing& packing : kPackings) {
    const std::string packed = packing.pack(text);
    for (const double part : {0.2, 0.5, 0.9, 0.9999}) {
      const std::string file = folder.write(
          "cut", packed.substr(0, static_cast<size_t>(part * static_cast<double>(packed.size()))));
      const std::string said = base::refusal(273, [&] { unpacked(file, 4096); });
      EXPECT_NE(said.find("ends in the middle"), std::string::npos) << said;
      EXPECT_NE(said.find(file), std::string::npos) << said;
    }
    std::string damaged = packed;
    damaged[packed.size() / 2] = static_cast<char>(damaged[packed.size() / 2] ^ 0x55);
    EXPECT_EQ(base::number_of_refusal([&] { unpacked(folder.write("damaged", damaged), 4096); }), 273);
    EXPECT_EQ(base::number_of_refusal([&] { unpacked(folder.write("more", packed + "garbage"), 4096); }),
              273);
  }
}

TEST(Unpack, NamesAreThoseOfWhatIsInside) {
  EXPECT_EQ(without_packing("a/b.jsonl.GZ"), "a/b.jsonl");
  EXPECT_EQ(without_packing("b.csv.zst"), "b.csv");
  EXPECT_EQ(without_packing("b.gz.txt"), "b.gz.txt");
  EXPECT_EQ(packing_of("\x1f\x8b\x08"), "gzip");
  EXPECT_EQ(packing_of("PK\x03\x04"), "");
  EXPECT_EQ(packing_of(""), "");
}

// The same parts of a packed file as of the file itself, put together again; and the same lines.
TEST(TextParts, ArePartsOfTheSameText) {
  std::mt19937_64 random(11);
  std::string text;
  for (int line = 0; line < 3000; ++line) text += random_text(random, random() % 200) + "\n";
  TestFolder folder;
  const Cut cut{.part = 5000, .longest = 100000, .find = [](std::string_view all, size_t from) {
                  const size_t newline = all.find('\n', from);
                  return newline == std::string_view::npos ? newline : newline + 1;
                }};
  for (const std::string& file : {folder.write("a.txt", text), folder.write("a.txt.gz", gzip(text)),
                                  folder.write("a.txt.zst", zstd(text))}) {
    TextParts parts(file, cut);
    std::string all;
    int64_t taken = 0, line = 1;
    bool ended = false;
    while (const auto part = parts.next()) {
      EXPECT_EQ(part->offset, static_cast<int64_t>(all.size()));
      EXPECT_EQ(part->first_line, line);
      EXPECT_EQ(part->begins, all.empty());
      EXPECT_FALSE(ended);
      EXPECT_EQ(part->bytes.back(), '\n');
      EXPECT_LT(part->bytes.size(), 6000u);
      all += part->bytes;
      line += std::count(part->bytes.begin(), part->bytes.end(), '\n');
      taken += part->taken;
      ended = part->ends;
    }
    EXPECT_TRUE(ended);
    EXPECT_EQ(all, text) << file;
    EXPECT_EQ(taken, parts.size()) << file;
  }
}

// A line that never ends costs no more memory than the longest that is kept; the next one is found again.
TEST(TextParts, PassOverALineWithoutAnEnd) {
  TestFolder folder;
  const std::string text = "first\n" + std::string(3'000'000, 'x') + "\nlast\n";
  for (const std::string& file : {folder.write("a.gz", gzip(text)), folder.write("a.txt", text)}) {
    SCOPED_TRACE(file);
    TextParts parts(file, {.part = 1000,
                           .longest = 50000,
                           .find =
                               [](std::string_view all, size_t from) {
                                 const size_t newline = all.find('\n', from);
                                 return newline == std::string_view::npos ? newline : newline + 1;
                               },
                           .pass_over_long_lines = true});
    const auto first = parts.next();
    ASSERT_TRUE(first);
    EXPECT_TRUE(first->bytes.starts_with("first\nxxx"));
    EXPECT_LT(first->bytes.size(), 1'000'000u);
    const auto last = parts.next();
    ASSERT_TRUE(last);
    EXPECT_EQ(last->bytes, "last\n");
    EXPECT_EQ(last->first_line, 3);
    EXPECT_EQ(last->offset, 6 + 3'000'001);
    EXPECT_EQ(first->taken + last->taken, parts.size());
    EXPECT_FALSE(parts.next());
  }
}

}  // namespace
}  // namespace lockstep::data
