// What the page asks for, as JSON: runs, curves, differences, one run at length, its timeline. Scripts may
// ask too (docs/dash.md).
//
//     Api api("runs");
//     const http::Reply reply = api.answer(request);       // GET /api/series?run=first&metric=loss
//
// Runs are named by their path below the root and looked up in the catalogue: no other file can be asked for.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <thread>

#include "lockstep/http/request.h"
#include "lockstep/see/dash/catalogue.h"
#include "lockstep/see/dash/open_runs.h"

namespace lockstep::see {

class Api {
 public:
  explicit Api(std::string root);  // starts a thread that looks at the folder while somebody asks
  ~Api();
  Api(const Api&) = delete;
  Api& operator=(const Api&) = delete;

  // Status 404 for what is no such question.
  http::Reply answer(const http::Request& request);
  Catalogue& catalogue() { return *catalogue_; }

 private:
  struct Watched;  // what the looking thread shares with us: it may be waiting for a dead disk when we end
  http::Reply runs();
  http::Reply run(const http::Request& request);
  http::Reply series(const http::Request& request);
  http::Reply compare(const http::Request& request);
  http::Reply timeline(const http::Request& request);
  http::Reply live();

  const std::string root_;
  std::shared_ptr<Watched> watched_;
  Catalogue* catalogue_;
  OpenRuns open_;
};

}  // namespace lockstep::see
