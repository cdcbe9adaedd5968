#include "lockstep/see/dash/dash.h"

#include <fmt/format.h>
#include <sys/random.h>

#include "lockstep/base/error.h"
#include "lockstep/see/dash/page.h"

namespace lockstep::see {

namespace {

using http::Reply;

constexpr const char* kNoToken =
    "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content=\"width=device-width\">"
    "<title>Lockstep: token needed</title><style>body{font:16px/1.5 sans-serif;max-width:34em;margin:15vh "
    "auto;padding:0 1em;color-scheme:light dark}</style><main><h1>This page needs a token</h1><p>Open the "
    "whole address that <code>lockstep dash</code> printed, with everything after <code>?token=</code>. A "
    "new "
    "start of the program has a new token.</main></html>";

// Takes as long whatever differs.
bool same_secret(const std::string& a, const std::string& b) {
  if (a.size() != b.size()) return false;
  unsigned difference = 0;
  for (size_t i = 0; i < a.size(); ++i) difference |= static_cast<unsigned char>(a[i] ^ b[i]);
  return difference == 0;
}

void add_rules(Reply& reply) {
  reply.headers.emplace_back("Content-Security-Policy",
                             "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
                             "connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; "
                             "frame-ancestors 'none'");
  reply.headers.emplace_back("Referrer-Policy", "no-referrer");
}

}  // namespace

std::string new_token() {
  unsigned char bytes[16];
  if (::getrandom(bytes, sizeof bytes, 0) != sizeof bytes)
    throw base::IoError(801, "the kernel gives no random numbers for a token");
  std::string token;
  for (const unsigned char byte : bytes) token += fmt::format("{:02x}", byte);
  return token;
}

std::string Dash::cookie_name() const { return fmt::format("lockstep_dash_{}", options_.port); }

bool Dash::may_look(const http::Request& request) const {
  if (options_.token.empty()) return true;
  const std::string* given = request.header("authorization");
  return same_secret(request.cookie(cookie_name()), options_.token) ||
         (given != nullptr && same_secret(*given, "Bearer " + options_.token));
}

Reply Dash::answer(const http::Request& request) {
  Reply reply;
  if (request.path == "/" && !options_.token.empty() && same_secret(request.value("token"), options_.token)) {
    reply = {.status = 303, .type = "text/plain"};
    reply.headers = {{"Location", "/"},
                     {"Cache-Control", "no-store"},
                     {"Set-Cookie", fmt::format("{}={}; HttpOnly; SameSite=Strict; Path=/", cookie_name(),
                                                options_.token)}};
  } else if (!may_look(request)) {
    const bool page = !request.path.starts_with("/api/");
    reply = {
        .status = 401,
        .type = page ? "text/html; charset=utf-8" : "application/json",
        .body =
            page
                ? kNoToken
                : R"({"error":"the token is missing or wrong: open the address that `lockstep dash` printed"})"};
  } else if (request.path.starts_with("/api/")) {
    reply = api_.answer(request);
  } else if (const PageFile* file = find_page_file(request.path)) {
    reply = {.type = std::string(file->type),
             .body = std::string(file->text),
             .headers = {{"Cache-Control", "no-cache"}}};
  } else {
    reply = {.status = 404, .type = "text/plain", .body = "there is no such page\n"};
  }
  add_rules(reply);
  return reply;
}

}  // namespace lockstep::see
