#include "lockstep/http/request.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

namespace lockstep::http {

namespace {

int digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const int letter = std::tolower(static_cast<unsigned char>(c));
  return letter >= 'a' && letter <= 'f' ? letter - 'a' + 10 : -1;
}

bool is_name(std::string_view text) {  // a token of RFC 9110
  constexpr std::string_view kOthers = "!#$%&'*+-.^_`|~";
  return !text.empty() && std::all_of(text.begin(), text.end(), [&](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || kOthers.find(c) != std::string_view::npos;
  });
}

bool is_printable(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c == '\t' || (c >= ' ' && c != 127); });
}

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](char c) { return static_cast<char>(std::tolower(static_cast<unsigned char>(c))); });
  return out;
}

std::string_view without_blanks(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

bool take_query(std::string_view text, Request& request) {
  while (!text.empty()) {
    const size_t end = std::min(text.find('&'), text.size());
    const std::string_view one = text.substr(0, end);
    const size_t equals = std::min(one.find('='), one.size());
    const auto name = percent_decoded(one.substr(0, equals));
    const auto value = percent_decoded(equals < one.size() ? one.substr(equals + 1) : "");
    if (!name || !value) return false;
    if (!name->empty()) request.query.emplace_back(*name, *value);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return true;
}

// "GET /path?query HTTP/1.1"
bool take_first_line(std::string_view line, Request& request) {
  const size_t method_end = line.find(' '), target_end = line.rfind(' ');
  if (method_end == std::string_view::npos || target_end <= method_end) return false;
  const std::string_view version = line.substr(target_end + 1);
  if (version != "HTTP/1.1" && version != "HTTP/1.0") return false;
  request.keep_alive = version == "HTTP/1.1";
  request.method = line.substr(0, method_end);
  const std::string_view target = line.substr(method_end + 1, target_end - method_end - 1);
  if (!is_name(request.method) || !target.starts_with('/') || target.find(' ') != std::string_view::npos)
    return false;
  const size_t question = std::min(target.find('?'), target.size());
  const auto path = percent_decoded(target.substr(0, question));
  if (!path) return false;
  request.path = *path;
  return question == target.size() || take_query(target.substr(question + 1), request);
}

bool take_header(std::string_view line, Request& request) {
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos || !is_name(line.substr(0, colon))) return false;
  request.headers.emplace_back(lower(line.substr(0, colon)), without_blanks(line.substr(colon + 1)));
  return true;
}

}  // namespace

std::optional<std::string> percent_decoded(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i] == '+' ? ' ' : text[i];
      continue;
    }
    if (i + 2 >= text.size()) return std::nullopt;
    const int high = digit(text[i + 1]), low = digit(text[i + 2]);
    if (high < 0 || low < 0 || high + low == 0) return std::nullopt;
    out += static_cast<char>(16 * high + low);
    i += 2;
  }
  return out;
}

std::optional<Request> parse_request(std::string_view head) {
  if (head.size() > kLongestHead || !head.ends_with("\r\n\r\n")) return std::nullopt;
  Request request;
  bool first = true;
  while (true) {
    const size_t end = head.find("\r\n");
    const std::string_view line = head.substr(0, end);
    if (line.empty()) break;
    if (!is_printable(line)) return std::nullopt;
    if (!(first ? take_first_line(line, request) : take_header(line, request))) return std::nullopt;
    first = false;
    head.remove_prefix(end + 2);
  }
  if (first) return std::nullopt;
  if (const std::string* connection = request.header("connection"))
    request.keep_alive = lower(*connection) != "close" && request.keep_alive;
  return request;
}

const std::string* Request::header(std::string_view name) const {
  for (const auto& [key, value] : headers) {
    if (key == name) return &value;
  }
  return nullptr;
}

std::string Request::value(std::string_view name) const {
  for (const auto& [key, value] : query) {
    if (key == name) return value;
  }
  return "";
}

std::vector<std::string> Request::values(std::string_view name) const {
  std::vector<std::string> found;
  for (const auto& [key, value] : query) {
    if (key == name) found.push_back(value);
  }
  return found;
}

std::string Request::cookie(std::string_view name) const {
  for (const auto& [key, value] : headers) {
    if (key != "cookie") continue;
    for (std::string_view rest = value; !rest.empty();) {
      const size_t end = std::min(rest.find(';'), rest.size());
      const std::string_view one = without_blanks(rest.substr(0, end));
      if (one.size() > name.size() && one.starts_with(name) && one[name.size()] == '=')
        return std::string(one.substr(name.size() + 1));
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
  }
  return "";
}

const char* reason_of(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 303:
      return "See Other";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 411:
      return "Length Required";
    case 413:
      return "Content Too Large";
    case 431:
      return "Request Header Fields Too Large";
    case 503:
      return "Service Unavailable";
    default:
      return "Internal Server Error";
  }
}

std::string head_of(const Reply& reply, bool keep_alive) {
  std::string head = fmt::format("HTTP/1.1 {} {}\r\nContent-Type: {}\r\nX-Content-Type-Options: nosniff\r\n",
                                 reply.status, reason_of(reply.status), reply.type);
  if (!reply.stream) head += fmt::format("Content-Length: {}\r\n", reply.body.size());
  head += keep_alive && !reply.stream ? "Connection: keep-alive\r\n" : "Connection: close\r\n";
  for (const auto& [name, value] : reply.headers) head += name + ": " + value + "\r\n";
  return head + "\r\n";
}

}  // namespace lockstep::http
