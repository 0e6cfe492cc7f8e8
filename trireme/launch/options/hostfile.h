// Which machines: host names, lists of them and hostfiles.
//
//   host1 slots=4            # a hostfile; `max_slots=8` may follow, `host1:4` is understood too
//   2001:db8::7 slots=2
//
//   std::vector<HostSlots> hosts = parse_hostfile("a slots=4\nb slots=2\n", "hosts.txt");
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "trireme/launch/options/request.h"

namespace trireme::launch {

/// A host name or address without brackets. `what` names the text in errors ("--ips", "hosts.txt:3"). A port, a space
/// or an impossible address (192.168.0.0.1) is a UsageError.
std::string parse_host(std::string_view text, std::string_view what);

/// 127.x.x.x, ::1 and localhost: addresses that mean another machine on every machine.
bool is_loopback(const std::string& host);

/// The same spelling for the same address: "A.example" and "a.example", "::1" and "0:0:0:0:0:0:0:1".
std::string canonical_host(const std::string& host);

/// The lines of a hostfile; `name` is the file's name for errors, which say name:line. At least one host, none twice.
std::vector<HostSlots> parse_hostfile(std::string_view text, const std::string& name);
std::vector<HostSlots> read_hostfile(const std::string& path);

/// Horovod's `-H a:2,b:4,[2001:db8::7]:2`; slots may be left out.
std::vector<HostSlots> parse_host_slots(std::string_view text, std::string_view what);

}  // namespace trireme::launch
