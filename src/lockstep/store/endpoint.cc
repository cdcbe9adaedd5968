#include "lockstep/store/endpoint.h"

#include <fmt/format.h>

#include <algorithm>

#include "lockstep/base/environment.h"
#include "lockstep/base/error.h"

namespace lockstep::store {
namespace {

std::string said(std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (const auto value = base::environment(name); value && !value->empty()) return *value;
  }
  return "";
}

std::string in_query(const Uri& uri, const std::string& key) {
  const std::string text = "&" + uri.query;
  const size_t at = text.find("&" + key + "=");
  if (at == std::string::npos) return "";
  const size_t begin = at + key.size() + 2;
  return text.substr(begin, std::min(text.find('&', begin), text.size()) - begin);
}

// "http://127.0.0.1:9000/" or "127.0.0.1:9000".
void take_address(const Uri& uri, std::string address, Endpoint& endpoint) {
  if (const size_t colon = address.find("://"); colon != std::string::npos) {
    endpoint.scheme = address.substr(0, colon);
    address = address.substr(colon + 3);
  }
  while (address.ends_with('/')) address.pop_back();
  endpoint.host = address;
  if (const std::string scheme = in_query(uri, "scheme"); !scheme.empty()) endpoint.scheme = scheme;
  if (endpoint.scheme != "http" && endpoint.scheme != "https")
    throw base::ConfigError(286, fmt::format("{}: its server's scheme must be http or https", uri.shown()));
}

std::string account_of(const Uri& uri) {
  const std::string account =
      uri.account.empty() ? said({"AZURE_STORAGE_ACCOUNT", "AZURE_STORAGE_ACCOUNT_NAME"}) : uri.account;
  if (account.empty()) {
    throw base::ConfigError(
        286, fmt::format("{}: no storage account is named; write "
                         "abfs://container@account.dfs.core.windows.net/path or set AZURE_STORAGE_ACCOUNT",
                         uri.shown()));
  }
  return account.substr(0, account.find('.'));
}

}  // namespace

std::string address_in_environment(const Uri& uri) {
  if (uri.scheme == "s3") return said({"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"});
  if (uri.scheme == "gs") return said({"STORAGE_EMULATOR_HOST"});
  if (uri.scheme == "abfs") return said({"AZURE_STORAGE_BLOB_ENDPOINT"});
  return "";
}

Endpoint endpoint_of(const Uri& uri) {
  Endpoint endpoint;
  std::string address = in_query(uri, "endpoint_override");
  if (address.empty()) address = address_in_environment(uri);
  if (uri.scheme == "s3") {
    endpoint.region = in_query(uri, "region");
    if (endpoint.region.empty()) endpoint.region = said({"AWS_REGION", "AWS_DEFAULT_REGION"});
    std::string unsigned_requests = said({"AWS_NO_SIGN_REQUEST"});
    std::transform(unsigned_requests.begin(), unsigned_requests.end(), unsigned_requests.begin(), ::tolower);
    endpoint.anonymous =
        unsigned_requests == "yes" || unsigned_requests == "true" || unsigned_requests == "1";
  } else if (uri.scheme == "gs") {
    endpoint.anonymous = !address.empty() && said({"GOOGLE_APPLICATION_CREDENTIALS"}).empty();
  } else if (uri.scheme == "abfs") {
    endpoint.account = account_of(uri);
    endpoint.key = said({"AZURE_STORAGE_KEY"});
    endpoint.sas_token = said({"AZURE_STORAGE_SAS_TOKEN"});
    // People have it in both forms; Arrow sets it behind the address as it is.
    if (!endpoint.sas_token.empty() && !endpoint.sas_token.starts_with('?'))
      endpoint.sas_token.insert(0, 1, '?');
  }
  take_address(uri, address, endpoint);
  return endpoint;
}

}  // namespace lockstep::store
