// lockstep dash: a page in the browser with every run of a folder, live.
#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "lockstep/base/descriptor.h"
#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/cli/commands.h"
#include "lockstep/cli/print.h"
#include "lockstep/cli/report_json.h"
#include "lockstep/cli/see/run_view.h"
#include "lockstep/cli/see/serving.h"
#include "lockstep/http/server.h"
#include "lockstep/see/dash/dash.h"

namespace lockstep::cli {

namespace {

constexpr int64_t kUsualPort = 8420;

void check_folder(const std::string& folder) {
  std::error_code error;
  if (std::filesystem::is_directory(folder, error)) return;
  throw base::ConfigError(
      109, fmt::format("{} is no folder; name one with runs: lockstep dash runs", base::quoted(folder)));
}

// What --host opens the door to.
void warn_of(const std::string& host) {
  remark(
      "warning: anyone who can reach {} and has the token can read your runs and recipes; it is plain HTTP, "
      "so the network can read along. Safer: leave --host away and use ssh -L.\n",
      host);
}

}  // namespace

int dash_command(Arguments& arguments) {
  std::string folder = "runs", host = "127.0.0.1";
  int64_t port = -1;  // not given
  bool no_token = false, json = false;
  arguments.positional("RUNS", folder,
                       "a folder of runs, one run, or the name of one in runs/; default: runs");
  arguments.option("--port", port, fmt::format("default: {}, or a free one; 0: a free one", kUsualPort));
  arguments.option("--host", host, "the address to listen on; default: 127.0.0.1, for this machine only");
  arguments.flag("--no-token", no_token, "let every user of this machine look");
  arguments.flag("--json", json, "print the address as JSON");
  arguments.example("lockstep dash", "every run in runs/, live; Ctrl-C ends it");
  arguments.example("lockstep dash runs/first --port 0", "one run, on a free port");
  arguments.example("ssh -L 8420:127.0.0.1:8420 HOST lockstep dash", "of another machine, in your browser");
  if (!arguments.parse()) return 0;
  const int wanted = checked_port("--port", port == -1 ? kUsualPort : port);
  if (const std::string run = run_folder_named(folder); !run.empty()) folder = run;
  check_folder(folder);
  const bool only_here = http::is_loopback(host);
  if (no_token && !only_here)
    throw base::ConfigError(109, "--no-token is for 127.0.0.1 only: with --host " + base::quoted(host) +
                                     " everybody on the network could read your runs");
  const base::Descriptor stop(stop_descriptor());
  http::Server server({.host = host, .port = wanted, .or_any_port = port == -1});
  const std::string token = no_token ? "" : see::new_token();
  const auto dash =
      std::make_shared<see::Dash>(see::DashOptions{.root = folder, .token = token, .port = server.port()});
  const std::string url = address_of(host, server.port()) + "/" + (token.empty() ? "" : "?token=" + token);
  if (!only_here) warn_of(host);
  if (json) {
    report_json(nlohmann::json{{"url", url}, {"port", server.port()}, {"token", token}});
  } else {
    print("{}\n", url);
    remark("showing {}; Ctrl-C ends it\n", base::quoted(folder));
  }
  std::fflush(stdout);
  server.serve(stop.number, [dash](const http::Request& request) { return dash->answer(request); });
  return 0;
}

}  // namespace lockstep::cli
