// The few cryptographic functions that the store needs, from OpenSSL's libcrypto.
#pragma once

#include <string>
#include <string_view>

namespace lockstep::comm {

// Starts OpenSSL without its configuration file and without its handlers at exit. Cheap after the first time;
// every function here and in store_tls.h calls it.
void start_openssl();

std::string hmac_sha256(std::string_view key, std::string_view message);  // 32 bytes
bool same_secret(std::string_view a, std::string_view b);  // takes equally long for any content
std::string random_bytes(size_t count);                    // from the kernel
// PBKDF2: makes each guess at a passphrase cost what it costs here, about a tenth of a second. 32 bytes.
std::string stretched(std::string_view passphrase);

}  // namespace lockstep::comm
