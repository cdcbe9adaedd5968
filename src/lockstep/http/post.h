// Sends one JSON body to an address, http or https, within a time limit.
//
//     const PostResult sent = post_json(parse_url("https://hooks.example.com/services/T0/B0/x"), body, 10s);
//     if (!sent.problem.empty()) ...   // never contains the address: it may be a secret
//
// https is checked against the system's certificates, or those of a file. Redirects are not followed.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep::http {

struct Url {
  bool tls = true;
  std::string host, port, path;  // the path begins with '/'
};
std::optional<Url> parse_url(std::string_view text);  // nothing: it is none of http:// or https://

struct PostResult {
  int status = 0;       // 200; 0: there was no answer
  std::string problem;  // empty: a 2xx answer
};
// Who sends it, to a server that asks.
struct PostAs {
  std::string bearer = {};   // a token, sent only where the connection is encrypted
  std::string ca_file = {};  // PEM: whom to trust; empty: whom the system trusts
};
PostResult post_json(const Url& url, const std::string& body, std::chrono::milliseconds timeout,
                     const PostAs& as = {});

}  // namespace lockstep::http
