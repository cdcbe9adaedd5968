// The dashboard: a page for people, the numbers behind it, and a door that opens to whoever has the token.
//
//     const auto dash = std::make_shared<Dash>({.root = "runs", .token = new_token(), .port =
//     server.port()}); server.serve(stop, [dash](const http::Request& request) { return
//     dash->answer(request); });
//
// The address that is printed carries the token once; the browser gets it back as a cookie that no other page
// can use. Scripts send "Authorization: Bearer TOKEN".
#pragma once

#include <string>

#include "lockstep/http/request.h"
#include "lockstep/see/dash/api.h"

namespace lockstep::see {

struct DashOptions {
  std::string root;   // a folder of runs, or one run
  std::string token;  // empty: everybody may look
  int port = 0;       // tells the cookies of two dashboards apart
};

class Dash {
 public:
  explicit Dash(const DashOptions& options) : options_(options), api_(options.root) {}
  http::Reply answer(const http::Request& request);
  Api& api() { return api_; }

 private:
  bool may_look(const http::Request& request) const;
  std::string cookie_name() const;

  const DashOptions options_;
  Api api_;
};

std::string new_token();  // 128 random bits

}  // namespace lockstep::see
