// Which server a store's requests go to and who asks, from the URI's query and the environment.
//
//     s3     AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, AWS_REGION, AWS_DEFAULT_REGION; credentials are found by
//            Arrow: AWS_ACCESS_KEY_ID and the like, ~/.aws, web identity, the machine's metadata server
//     gs     STORAGE_EMULATOR_HOST; credentials: GOOGLE_APPLICATION_CREDENTIALS, gcloud's file, the metadata
//            server
//     abfs   AZURE_STORAGE_ACCOUNT, AZURE_STORAGE_KEY or AZURE_STORAGE_SAS_TOKEN; else what the Azure library
//            finds: AZURE_CLIENT_ID and the like, workload and managed identity, the az command
//
// LOCKSTEP has no variables of its own for these. anonymous=yes is said by AWS_NO_SIGN_REQUEST=YES for S3,
// and follows from STORAGE_EMULATOR_HOST for Google.
#pragma once

#include <string>

#include "lockstep/store/uri.h"

namespace lockstep::store {

struct Endpoint {
  std::string host = {};  // "127.0.0.1:9000"; empty: the cloud's own
  std::string scheme = "https";
  std::string region = {};  // s3; empty: the bucket's, which is asked for
  bool anonymous = false;
  std::string account = {}, key = {}, sas_token = {};  // abfs; never shown
};
Endpoint endpoint_of(const Uri& uri);                // ConfigError 286
std::string address_in_environment(const Uri& uri);  // of another server; empty: the cloud's own

}  // namespace lockstep::store
