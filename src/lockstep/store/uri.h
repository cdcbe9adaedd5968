// Where something lies in an object store: "s3://bucket/corpus/a.parquet".
//
//     s3://bucket/path        Amazon S3 and everything that speaks its protocol
//     gs://bucket/path        Google Cloud Storage (gcs:// too)
//     abfs://container@account.dfs.core.windows.net/path        Azure (abfss:// too)
//     file:///mnt/disk/path   a folder of this machine, as if it were a store
//
// An end such as ?endpoint_override=127.0.0.1:9000&scheme=http names another server. Keys and passwords are
// no part of a URI here: they would end up in recipes and logs. They come from the environment.
#pragma once

#include <string>
#include <string_view>

namespace lockstep::store {

struct Uri {
  std::string scheme;   // s3, gs, abfs or file
  std::string account;  // abfs: the host that follows the @; empty: AZURE_STORAGE_ACCOUNT says it
  std::string path;     // "bucket/corpus/a.parquet", without a slash at its ends
  std::string query;    // "endpoint_override=...&scheme=http"; never shown

  std::string shown() const;                        // as it was written, without the query
  std::string shown(const std::string& key) const;  // of another object of this store
  std::string bucket() const { return path.substr(0, path.find('/')); }
};

bool is_uri(std::string_view text);      // whether it begins with one of these schemes
Uri parse_uri(const std::string& text);  // ConfigError 286

std::string joined(const std::string& folder, const std::string& name);  // with one slash between
bool is_pattern(std::string_view path);                                  // holds *, ? or [
// Whether a pattern matches an object, or a folder that it lies in: * stays within one name.
bool matches(const std::string& pattern, const std::string& path);
// What of a pattern stands before its first name that is one: "bucket/corpus" of "bucket/corpus/*.parquet".
std::string folder_of_pattern(const std::string& pattern);

}  // namespace lockstep::store
