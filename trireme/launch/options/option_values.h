// From the text behind an option of the launcher to a value, beside those that all programs have. Every function throws
// UsageError that shows the option, what was written, what is allowed and what to do.
//
//   devices_value({"--gpus", "0,01"})    ->  {"0", "1"}
//   nodes_value({"--nnodes", "2"})       ->  2; MIN:MAX is refused, because elastic membership is not in this release
#pragma once

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
int nodes_value(const Given& given);
/// Ids or UUIDs, none twice; numbers without leading zeros.
std::vector<std::string> devices_value(const Given& given);
/// Hosts without ports, none twice.
std::vector<HostSlots> ips_value(const Given& given);
uint16_t port_value(const Given& given, uint16_t low = 1);
Bind bind_value(const Given& given);
/// "all", "none" or local ranks, into request.tee and request.tee_all.
void set_tee(const Given& given, Request& request);
/// K=V
std::pair<std::string, std::string> variable_value(const Given& given);
/// RANK:CMD
std::pair<int, std::string> wrap_value(const Given& given);

}  // namespace trireme::launch
