// The few questions the launcher asks of the network: a free port, our own address, whether a name is this
// machine.
#pragma once

#include <string>

namespace lockstep::launch {

// A TCP port that nothing listens on right now, for somebody who will listen on it later: a script that first
// loads PyTorch takes seconds. So it is none of those that the kernel hands out by itself, to outgoing
// connections and to listeners that name no port. IoError 532.
int free_port();
int free_ports(int count);  // the first of so many consecutive ones

bool port_is_free(int port);  // nothing listens on it here

// The address that this machine would use to talk to `host`; "127.0.0.1" when it cannot be known.
std::string address_towards(const std::string& host);

// Debian lets a machine's own name mean 127.0.1.1, which no other machine reaches: such a name becomes the
// address that leads outside, if there is one. Numbers, "localhost" and every other name stay as they are.
std::string reachable(const std::string& host);

// Whether the resolver knows this name, or it is a number.
bool name_resolves(const std::string& host);

// Whether `host` (a name or a number) is an address of this machine.
bool is_this_machine(const std::string& host);

}  // namespace lockstep::launch
