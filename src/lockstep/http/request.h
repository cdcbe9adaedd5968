// One HTTP request as a browser or a script sends it, and the reply to it.
//
//     std::optional<Request> request = parse_request("GET /api/run?run=first HTTP/1.1\r\nHost: ...\r\n\r\n");
//     request->path == "/api/run", request->value("run") == "first"
//
// Strict: what is not plainly HTTP/1.0 or 1.1 is refused, not guessed at. Bodies are read where a server
// wants them (server.h); most only answer questions.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep::http {

constexpr size_t kLongestHead = 16 << 10;  // bytes of a request line and its headers

struct Request {
  std::string method, path;                                  // "GET", "/api/run"; the path is decoded
  std::vector<std::pair<std::string, std::string>> query;    // decoded, in their order
  std::vector<std::pair<std::string, std::string>> headers;  // names in lower case
  bool keep_alive = true;
  std::string body = {};

  const std::string* header(std::string_view name) const;  // null: it has none
  std::string value(std::string_view name) const;          // of the query; empty: it has none
  std::vector<std::string> values(std::string_view name) const;
  std::string cookie(std::string_view name) const;  // empty: it has none
};

// From the first byte to the empty line, with it. None: it is no request.
std::optional<Request> parse_request(std::string_view head);

// "%2Fa+b" is "/a b". None: a percent sign without two digits, or a zero byte.
std::optional<std::string> percent_decoded(std::string_view text);

struct Reply {
  int status = 200;
  std::string type = "application/json";
  std::string body = {};
  std::vector<std::pair<std::string, std::string>> headers = {};
  // Instead of a body: called again and again for the next piece until it gives none; it waits itself, and
  // never longer than about a second, so that an empty piece tells whether the reader is still there.
  std::function<std::optional<std::string>()> stream = nullptr;
};

const char* reason_of(int status);  // "Not Found"
// The head of a reply, with the empty line: length unknown for a stream, which ends with its connection.
std::string head_of(const Reply& reply, bool keep_alive);

}  // namespace lockstep::http
