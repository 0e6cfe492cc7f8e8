// From the text behind an option to a value. Every function throws UsageError that shows the option, what was written,
// what is allowed and what to do.
//
//   int_value({"--rank", "7"}, 0, 15)              ->  7
//   duration_value({"--grace", "500ms"})           ->  500 ms
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trireme/launch/options/request.h"

namespace trireme::launch {

/// What was written for an option, and where: source is "--gpus" as typed, or "PADDLE_DEVICES".
struct Given {
  std::string source;
  std::string text;
  /// "--gpus 0,1", or "PADDLE_DEVICES=0,1" for a variable.
  std::string shown() const;
};

int int_value(const Given& given, int64_t low, int64_t high, std::string_view advice = "");
/// true/false, yes/no, on/off, 1/0.
bool bool_value(const Given& given);
bool is_bool_word(std::string_view text);
/// `10`, `10s`, `500ms`, `2m`, `1h`, `0.5`; up to 30 days. Plain numbers are seconds.
std::chrono::milliseconds duration_value(const Given& given);
/// Not empty.
std::string text_value(const Given& given);
std::string job_id_value(const Given& given);

/// A number in range, "gpu", "cpu" or "auto".
std::string processes_value(const Given& given);
NodeRange nodes_value(const Given& given);
/// Ids or UUIDs, none twice; numbers without leading zeros.
std::vector<std::string> devices_value(const Given& given);
/// Hosts without ports, none twice, no loopback address beside others.
std::vector<std::string> ips_value(const Given& given);
uint16_t port_value(const Given& given, uint16_t low = 1);
Bind bind_value(const Given& given);
/// "all", "none" or local ranks, into request.tee and request.tee_all.
void set_tee(const Given& given, Request& request);
/// K=V
std::pair<std::string, std::string> variable_value(const Given& given);
/// RANK:CMD
std::pair<int, std::string> wrap_value(const Given& given);

}  // namespace trireme::launch
