#include "lockstep/store/classify.h"

#include <algorithm>
#include <cctype>

namespace lockstep::store {
namespace {

struct Word {
  const char* text;
  Fault::Kind kind;
};

// In this order: an answer that says two of them means the first.
constexpr Word kWords[] = {
    {"SLOW_DOWN", Fault::Kind::passing},
    {"SlowDown", Fault::Kind::passing},
    {"THROTTLING", Fault::Kind::passing},
    {"SERVICE_UNAVAILABLE", Fault::Kind::passing},
    {"HTTP status 429", Fault::Kind::passing},
    {"EXPIRED_TOKEN", Fault::Kind::denied},
    {"ExpiredToken", Fault::Kind::denied},
    {"INVALID_CLIENT_TOKEN_ID", Fault::Kind::denied},
    {"INVALID_ACCESS_KEY_ID", Fault::Kind::denied},
    {"InvalidAccessKeyId", Fault::Kind::denied},
    {"INVALID_SIGNATURE", Fault::Kind::denied},
    {"SIGNATURE_DOES_NOT_MATCH", Fault::Kind::denied},
    {"MISSING_AUTHENTICATION_TOKEN", Fault::Kind::denied},
    {"ACCESS_DENIED", Fault::Kind::denied},
    {"AccessDenied", Fault::Kind::denied},
    {"UNAUTHENTICATED", Fault::Kind::denied},
    {"PERMISSION_DENIED", Fault::Kind::denied},
    {"HTTP status 401", Fault::Kind::denied},
    {"HTTP status 403", Fault::Kind::denied},
    {"AuthenticationFailed", Fault::Kind::denied},
    {"AuthorizationFailure", Fault::Kind::denied},
    {"AuthorizationPermissionMismatch", Fault::Kind::denied},
    {"AuthorizationProtocolMismatch", Fault::Kind::denied},
    {"AuthorizationResourceTypeMismatch", Fault::Kind::denied},
    {"AuthorizationServiceMismatch", Fault::Kind::denied},
    {"AuthorizationSourceIPMismatch", Fault::Kind::denied},
    {"InsufficientAccountPermissions", Fault::Kind::denied},
    {"InvalidAuthenticationInfo", Fault::Kind::denied},
    {"NoAuthenticationInformation", Fault::Kind::denied},
    {"AccountIsDisabled", Fault::Kind::denied},
    {"CredentialUnavailable", Fault::Kind::denied},
    {"Could not create a OAuth2", Fault::Kind::denied},
    {"HTTP status 400", Fault::Kind::denied},  // to a question without a body: a token that has expired
    {"NO_SUCH_BUCKET", Fault::Kind::missing},
    {"NoSuchBucket", Fault::Kind::missing},
    {"NO_SUCH_KEY", Fault::Kind::missing},
    {"NoSuchKey", Fault::Kind::missing},
    {"RESOURCE_NOT_FOUND", Fault::Kind::missing},
    {"NOT_FOUND", Fault::Kind::missing},
    {"HTTP status 404", Fault::Kind::missing},
    {"ContainerNotFound", Fault::Kind::missing},
    {"BlobNotFound", Fault::Kind::missing},
    {"Path does not exist", Fault::Kind::missing},
    {"does not exist", Fault::Kind::missing},
    {"No such file or directory", Fault::Kind::missing},
    {"not found", Fault::Kind::missing},
};

// What stands before a secret in messages of servers and client libraries.
constexpr const char* kBeforeSecrets[] = {
    "Signature=",      "signature=",       "sig=",           "Credential=",
    "AWSAccessKeyId=", "<AWSAccessKeyId>", "<StringToSign>", "<SignatureProvided>",
    "Authorization:",  "Bearer ",          "access_token=",  "X-Amz-Security-Token=",
    "AccountKey="};

constexpr size_t kLongest = 400;

}  // namespace

Fault::Kind kind_of_fault(const std::string& message) {
  for (const Word& word : kWords) {
    if (message.find(word.text) != std::string::npos) return word.kind;
  }
  return Fault::Kind::passing;
}

std::string without_secrets(const std::string& message) {
  std::string text = message;
  for (const std::string before : kBeforeSecrets) {
    for (size_t at = text.find(before); at != std::string::npos; at = text.find(before, at + before.size())) {
      const size_t begin = at + before.size();
      const auto end = std::find_if(
          text.begin() +
              static_cast<std::ptrdiff_t>(std::min(text.size(), begin + (text[begin] == ' ' ? 1 : 0))),
          text.end(), [](unsigned char c) {
            return std::isspace(c) != 0 || c == ',' || c == '&' || c == '<' || c == '"';
          });
      text.replace(begin, static_cast<size_t>(end - text.begin()) - begin, "...");
    }
  }
  if (text.size() > kLongest) text = text.substr(0, kLongest) + "...";
  return text;
}

}  // namespace lockstep::store
