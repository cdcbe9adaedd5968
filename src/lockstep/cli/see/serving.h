// What commands that serve pages share: they run until they are asked to end.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep::cli {

// Readable when the program is asked to end (SIGINT, SIGTERM, SIGHUP). Called before any thread starts: they
// inherit that these signals are blocked.
int stop_descriptor();

// ConfigError 109: it is no port.
int checked_port(const std::string& option, int64_t port);

// "http://127.0.0.1:8420"; of a server that listens on every address, this host's name.
std::string address_of(const std::string& host, int port);

}  // namespace lockstep::cli
