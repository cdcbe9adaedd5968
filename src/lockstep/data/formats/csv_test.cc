#include "lockstep/data/formats/csv.h"

#include <gtest/gtest.h>

#include "lockstep/base/refusal.h"
#include "lockstep/data/corpus/corpus.h"
#include "lockstep/data/documents/packing_testing.h"
#include "lockstep/data/test_folder.h"

namespace lockstep::data {
namespace {

// Every record's fields, "|" between them.
std::vector<std::string> records(std::string_view text, char separator = ',') {
  std::vector<std::string> all;
  while (!text.empty()) {
    CsvRecord record;
    const std::vector<std::string> fields = fields_of(text, separator, record);
    std::string joined = record.closed ? "" : "open:";
    if (!record.clean) joined += "unclean:";
    for (size_t i = 0; i < record.fields; ++i) joined += (i == 0 ? "" : "|") + fields[i];
    all.push_back(joined);
    text.remove_prefix(record.end);
  }
  return all;
}

TEST(Csv, RecordsAreThoseOfRfc4180) {
  using Rows = std::vector<std::string>;
  struct Row {
    const char* text;
    Rows expected;
  };
  for (const Row& row : std::initializer_list<Row>{
           {"a,b\n1,2\n", Rows{"a|b", "1|2"}},
           {"a,b\r\n1,2\r\n", Rows{"a|b", "1|2"}},
           {"a,b\n1,2", Rows{"a|b", "1|2"}},
           {"\"a\"\"b\",c\n", Rows{"a\"b|c"}},
           {"\"a,b\nc\",d\n", Rows{"a,b\nc|d"}},
           {",\n", Rows{"|"}},
           {"a,\n\nb\n", Rows{"a|", "", "b"}},
           {"5\" pipe,x\n", Rows{"5\" pipe|x"}},
           {"\"\",\"\"\r\n", Rows{"|"}},
           {"\"open\n", Rows{"open:open\n"}},
           {"\"a\"b,c\n", Rows{"unclean:a|c"}},
       })
    EXPECT_EQ(records(row.text), row.expected) << row.text;
  EXPECT_EQ(records("a\tb,c\n", '\t'), (Rows{"a|b,c"}));
}

struct Found {
  std::vector<std::string> texts, bad;
};
Found documents(const std::string& file, const CorpusOptions& options) {
  Found found;
  const auto reader = open_corpus(file, options);
  while (const auto part = reader->next_part())
    reader->each_document(
        *part, [&](const Document& one) { found.texts.emplace_back(one.text); },
        [&](const BadDocument& one) { found.bad.push_back(one.sentence); });
  return found;
}

TEST(Csv, AColumnIsTheDocuments) {
  TestFolder folder;
  std::string text = "\xEF\xBB\xBFid,text\r\n";
  std::vector<std::string> expected;
  for (int i = 0; i < 500; ++i) {
    expected.push_back("row " + std::to_string(i) + ", with \"quotes\"\nand lines");
    std::string doubled = expected.back();
    for (size_t at = 0; (at = doubled.find('"', at)) != std::string::npos; at += 2) doubled.insert(at, "\"");
    text += std::to_string(i) + ",\"" + doubled + "\"\r\n";
  }
  for (const std::string& file : {folder.write("a.csv", text), folder.write("a.csv.gz", gzip(text)),
                                  folder.write("b.CSV.zst", zstd(text))}) {
    for (const size_t part : {size_t{50}, size_t{3000}, size_t{1} << 20}) {
      const Found found = documents(file, {.field = "text", .part = part});
      EXPECT_EQ(found.texts, expected) << file << " in parts of " << part;
      EXPECT_TRUE(found.bad.empty());
    }
  }
}

TEST(Csv, SaysWhichRowIsBroken) {
  TestFolder folder;
  const std::string file =
      folder.write("a.csv", "id,text\n1,good\n2,too,many\n3\n\n4,\xff\n5,\"a\"b\n6,\"two\nlines\"\n");
  const Found found = documents(file, {});
  EXPECT_EQ(found.texts, (std::vector<std::string>{"good", "two\nlines"}));
  ASSERT_EQ(found.bad.size(), 4u);
  EXPECT_EQ(found.bad[0], file + " line 3 (byte 15) has 3 fields, but the first line names 2");
  EXPECT_EQ(found.bad[1], file + " line 4 (byte 26) has 1 fields, but the first line names 2");
  EXPECT_NE(found.bad[2].find("line 6"), std::string::npos);
  EXPECT_NE(found.bad[3].find("behind") + found.bad[3].find("closing quote"), std::string::npos);
}

TEST(Csv, RefusesWhatHasNoSuchColumnOrNoEnd) {
  TestFolder folder;
  const std::string said =
      base::refusal(212, [&] { open_corpus(folder.write("a.tsv", "id\tbody\n1\tx\n"), {}); });
  EXPECT_NE(said.find("\"id\", \"body\""), std::string::npos) << said;
  const std::string open = folder.write("b.csv", "text\ngood\n\"never closed\n");
  EXPECT_NE(base::refusal(274, [&] { documents(open, {}); }).find("line 3"), std::string::npos);
  EXPECT_TRUE(documents(folder.write("empty.csv", ""), {}).texts.empty());
}

}  // namespace
}  // namespace lockstep::data
