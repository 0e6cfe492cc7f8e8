// From the text behind an option of the launcher to a value, beside those that all programs have. Every function throws
// UsageError that shows the option, what was written, what is allowed and what to do.
//
//   devices_value({"--gpus", "0,01"})    ->  {"0", "1"}
//   nodes_value({"--nnodes", "2:4"})     ->  {2, 4}
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trireme/core/option_values.h"
#include "trireme/launch/options/request.h"

namespace trireme::launch {

/// Not empty.
std::string text_value(const Given& given);
std::string job_id_value(const Given& given);

/// A number in range, "gpu", "cpu" or "auto".
std::string processes_value(const Given& given);
/// N or MIN:MAX: the smallest and the largest number.
std::pair<int, int> nodes_value(const Given& given);
/// An --elastic_level of the peers: -1, 0 or 1.
int elastic_level_value(const Given& given);
/// Ids or UUIDs, none twice; numbers without leading zeros.
std::vector<std::string> devices_value(const Given& given);
/// Hosts without ports, none twice.
std::vector<HostSlots> ips_value(const Given& given);
/// A time from a second on: the kernel's probes know no less.
std::chrono::milliseconds link_timeout_value(const Given& given);
uint16_t port_value(const Given& given, uint16_t low = 1);
/// [HOST:]PORT; without a host on this machine alone. Port 0 is any free one.
Endpoint page_address_value(const Given& given);
Bind bind_value(const Given& given);
Progress progress_value(const Given& given);
/// "all", "none" or local ranks, into request.tee and request.tee_all.
void set_tee(const Given& given, Request& request);
/// K=V
std::pair<std::string, std::string> variable_value(const Given& given);
/// RANK:CMD
std::pair<int, std::string> wrap_value(const Given& given);

}  // namespace trireme::launch
