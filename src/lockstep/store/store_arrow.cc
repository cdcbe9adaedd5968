// The plugin's half of store.h: Arrow's file systems for S3, Google Cloud Storage and Azure.
//
// Arrow tries again only a little: waiting is patient_store.cc's. Its messages name buckets, keys and what
// the server said, never credentials; those that it may quote all the same are cut out.
#include <arrow/filesystem/azurefs.h>
#include <arrow/filesystem/gcsfs.h>
#include <arrow/filesystem/s3fs.h>
#include <arrow/io/interfaces.h>
#include <arrow/util/key_value_metadata.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "lockstep/base/descriptor.h"
#include "lockstep/store/classify.h"
#include "lockstep/store/endpoint.h"
#include "lockstep/store/store.h"

namespace lockstep::store {
namespace {

namespace afs = arrow::fs;

constexpr int64_t kOwnAttempts = 2;        // of the client library; the rest is patient_store.cc's
constexpr double kOwnSeconds = 5;          // the same where it counts in seconds
constexpr size_t kPart = size_t{8} << 20;  // written at once

void check(const arrow::Status& status) {
  if (status.ok()) return;
  std::string why = status.message();
  std::replace(why.begin(), why.end(), '\n', ' ');
  throw Fault(kind_of_fault(why), without_secrets(why));
}
template <class Value>
Value taken(arrow::Result<Value> result) {
  check(result.status());
  return std::move(result).ValueUnsafe();
}

Object object_of(const afs::FileInfo& info) {
  return {.key = info.path(),
          .size = info.size(),
          .changed_ns = info.mtime() == afs::kNoTime ? 0 : info.mtime().time_since_epoch().count()};
}

class ArrowStore final : public Store {
 public:
  explicit ArrowStore(std::shared_ptr<afs::FileSystem> system) : system_(std::move(system)) {}

  std::vector<Object> list(const std::string& folder) override {
    afs::FileSelector selector;
    selector.base_dir = folder;
    selector.recursive = true;
    selector.allow_not_found = false;
    std::vector<Object> found;
    arrow::Result<std::vector<afs::FileInfo>> infos = system_->GetFileInfo(selector);
    if (!infos.ok() && kind_of_fault(infos.status().message()) == Fault::Kind::missing) {
      check_bucket(folder);
      return found;
    }
    for (const afs::FileInfo& info : taken(std::move(infos))) {
      if (info.IsFile() && !info.path().ends_with('/')) found.push_back(object_of(info));
    }
    std::sort(found.begin(), found.end(), [](const Object& a, const Object& b) { return a.key < b.key; });
    return found;
  }

  std::optional<Object> find(const std::string& key) override {
    const afs::FileInfo info = taken(system_->GetFileInfo(key));
    if (info.type() == afs::FileType::NotFound) check_bucket(key);
    if (!info.IsFile()) return std::nullopt;
    Object object = object_of(info);
    const auto file = taken(system_->OpenInputFile(info));
    const auto metadata = taken(file->ReadMetadata());
    for (const char* name : {"ETag", "generation", "etag"}) {
      if (metadata && object.version.empty()) object.version = metadata->Get(name).ValueOr("");
    }
    return object;
  }

  void read(const Object& object, int64_t offset, std::span<std::byte> out) override {
    afs::FileInfo info(object.key, afs::FileType::File);
    info.set_size(object.size);  // so that nothing is asked before it is read
    const auto file = taken(system_->OpenInputFile(info));
    const int64_t wanted = static_cast<int64_t>(out.size());
    const int64_t got = taken(file->ReadAt(offset, wanted, out.data()));
    if (got == wanted) return;
    throw Fault(Fault::Kind::passing,
                fmt::format("{} bytes came of the {} from byte {} on", got, wanted, offset));
  }

  void write(const std::string& key, const std::string& from) override {
    const base::Descriptor file(::open(from.c_str(), O_RDONLY | O_CLOEXEC));
    if (file.number < 0) refuse_local(from);
    const auto out = taken(system_->OpenOutputStream(key));
    try {
      std::vector<std::byte> part(kPart);
      for (;;) {
        const ssize_t got = ::read(file.number, part.data(), part.size());
        if (got < 0) refuse_local(from);
        if (got == 0) break;
        check(out->Write(part.data(), got));
      }
      check(out->Close());
    } catch (...) {
      static_cast<void>(out->Abort());  // or closing would make an object of what is there
      throw;
    }
  }

  void remove(const std::string& key) override {
    const arrow::Status status = system_->DeleteFile(key);
    if (!status.ok() && kind_of_fault(status.message()) == Fault::Kind::missing) return check_bucket(key);
    check(status);
  }

 private:
  // A bucket that is gone is another thing than a folder without objects.
  void check_bucket(const std::string& key) {
    const std::string bucket = key.substr(0, key.find('/'));
    const afs::FileInfo info = taken(system_->GetFileInfo(bucket));
    if (info.type() == afs::FileType::NotFound)
      throw Fault(Fault::Kind::missing, fmt::format("there is no bucket {}", bucket));
  }

  [[noreturn]] static void refuse_local(const std::string& file) {
    throw Fault(Fault::Kind::local, fmt::format("{} cannot be read: {}", file, std::strerror(errno)));
  }

  std::shared_ptr<afs::FileSystem> system_;
};

std::shared_ptr<afs::FileSystem> open_s3(const Uri& uri) {
  const Endpoint endpoint = endpoint_of(uri);
  // Amazon's client puts a checksum behind each body, sent in chunks without a length: servers of others may
  // refuse that (Ceph's answer is 411). What the user has set stays.
  if (!endpoint.host.empty()) ::setenv("AWS_REQUEST_CHECKSUM_CALCULATION", "when_required", 0);
  check(afs::EnsureS3Initialized());
  static const int at_exit = std::atexit([] { static_cast<void>(afs::EnsureS3Finalized()); });
  static_cast<void>(at_exit);
  afs::S3Options options = afs::S3Options::Defaults();
  options.endpoint_override = endpoint.host;
  options.scheme = endpoint.scheme;
  if (!endpoint.region.empty()) {
    options.region = endpoint.region;
  } else if (endpoint.host.empty()) {
    const auto region = afs::ResolveS3BucketRegion(uri.bucket());
    if (region.ok()) options.region = *region;
  } else {
    options.region = "us-east-1";
  }
  if (endpoint.anonymous) options.ConfigureAnonymousCredentials();
  options.connect_timeout = 10;
  options.request_timeout = 30;
  options.retry_strategy = afs::S3RetryStrategy::GetAwsStandardRetryStrategy(kOwnAttempts);
  return taken(afs::S3FileSystem::Make(options));
}

std::shared_ptr<afs::FileSystem> open_gcs(const Uri& uri) {
  const Endpoint endpoint = endpoint_of(uri);
  afs::GcsOptions options = endpoint.anonymous ? afs::GcsOptions::Anonymous() : afs::GcsOptions::Defaults();
  options.endpoint_override = endpoint.host;
  options.scheme = endpoint.scheme;
  options.retry_limit_seconds = kOwnSeconds;
  return taken(afs::GcsFileSystem::Make(options));
}

std::shared_ptr<afs::FileSystem> open_azure(const Uri& uri) {
  const Endpoint endpoint = endpoint_of(uri);
  afs::AzureOptions options;
  options.account_name = endpoint.account;
  if (!endpoint.host.empty()) {
    options.blob_storage_authority = options.dfs_storage_authority = endpoint.host;
    options.blob_storage_scheme = options.dfs_storage_scheme = endpoint.scheme;
  }
  if (!endpoint.key.empty()) {
    check(options.ConfigureAccountKeyCredential(endpoint.key));
  } else if (!endpoint.sas_token.empty()) {
    check(options.ConfigureSASCredential(endpoint.sas_token));
  } else {
    check(options.ConfigureDefaultCredential());
  }
  return taken(afs::AzureFileSystem::Make(options));
}

}  // namespace
}  // namespace lockstep::store

lockstep::store::Store* lockstep_open_store(const lockstep::store::Uri& uri) {
  using namespace lockstep::store;
  if (uri.scheme == "s3") return new ArrowStore(open_s3(uri));
  if (uri.scheme == "gs") return new ArrowStore(open_gcs(uri));
  return new ArrowStore(open_azure(uri));
}
