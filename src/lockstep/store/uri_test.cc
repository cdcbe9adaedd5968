#include "lockstep/store/uri.h"

#include <gtest/gtest.h>

#include "lockstep/base/error.h"

namespace lockstep::store {
namespace {

TEST(Uri, Parts) {
  struct Row {
    const char *text, *scheme, *path, *query, *shown;
  };
  const Row rows[] = {
      {"s3://bucket/a/b.bin", "s3", "bucket/a/b.bin", "", "s3://bucket/a/b.bin"},
      {"s3://bucket/a/", "s3", "bucket/a", "", "s3://bucket/a"},
      {"gcs://bucket/a", "gs", "bucket/a", "", "gs://bucket/a"},
      {"gs://b/a?endpoint_override=127.0.0.1:9&scheme=http", "gs", "b/a",
       "endpoint_override=127.0.0.1:9&scheme=http", "gs://b/a"},
      {"s3://b/part-?.txt", "s3", "b/part-?.txt", "", "s3://b/part-?.txt"},
      {"s3://b/part-?.txt?region=eu-1", "s3", "b/part-?.txt", "region=eu-1", "s3://b/part-?.txt"},
      {"abfs://box@name.dfs.core.windows.net/a/b", "abfs", "box/a/b", "",
       "abfs://box@name.dfs.core.windows.net/a/b"},
      {"abfss://box/a", "abfs", "box/a", "", "abfs://box/a"},
      {"file:///mnt/runs/a", "file", "mnt/runs/a", "", "file:///mnt/runs/a"},
  };
  for (const Row& row : rows) {
    const Uri uri = parse_uri(row.text);
    EXPECT_EQ(uri.scheme, row.scheme) << row.text;
    EXPECT_EQ(uri.path, row.path) << row.text;
    EXPECT_EQ(uri.query, row.query) << row.text;
    EXPECT_EQ(uri.shown(), row.shown) << row.text;
  }
}

// Nothing that looks like a secret is repeated.
TEST(Uri, Refused) {
  const char* rows[] = {"s3://",
                        "s3:///a",
                        "s3://KEY:SECRET@bucket/a",
                        "gs://SECRET@bucket/a",
                        "abfs://box:SECRET@name/a",
                        "s3://b/a?endpoint_override=h&secret_key=SECRET",
                        "s3://b/../a",
                        "s3://b//a",
                        "s3://b/a\nb",
                        "http://b/a"};
  for (const char* text : rows) {
    try {
      ADD_FAILURE() << text << " is taken for " << parse_uri(text).shown();
    } catch (const base::ConfigError& error) {
      EXPECT_EQ(error.number(), 286) << text;
      EXPECT_EQ(std::string(error.what()).find("SECRET"), std::string::npos) << error.what();
    }
  }
}

TEST(Uri, IsUri) {
  for (const char* text : {"s3://a", "gs://a/b", "abfs://a@b/c", "file:///a"}) EXPECT_TRUE(is_uri(text));
  for (const char* text : {"a/b", "/a", "s3:/a", "http://a", "", "s3", "as3://b"})
    EXPECT_FALSE(is_uri(text)) << text;
}

TEST(Uri, Patterns) {
  struct Row {
    const char *pattern, *path;
    bool matches;
  };
  const Row rows[] = {{"b/*.txt", "b/a.txt", true},       {"b/*.txt", "b/c/a.txt", false},
                      {"b/*", "b/c/a.txt", true},         {"b/x-?.bin", "b/x-1.bin", true},
                      {"b/*/a.txt", "b/c/a.txt", true},   {"b/[ab].txt", "b/c.txt", false},
                      {"b/*.txt", "b/.hidden.txt", false}};
  for (const Row& row : rows) EXPECT_EQ(matches(row.pattern, row.path), row.matches) << row.pattern;
  EXPECT_EQ(folder_of_pattern("b/c/*.txt"), "b/c");
  EXPECT_EQ(folder_of_pattern("b/*/d.txt"), "b");
}

}  // namespace
}  // namespace lockstep::store
