#include "trireme/launch/options/option_values.h"

#include <algorithm>
#include <set>

#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/launch/options/hostfile.h"

namespace trireme::launch {
namespace {

constexpr size_t kMaxJobId = 128;

bool is_uuid(std::string_view id) {
  return (id.starts_with("GPU-") || id.starts_with("MIG-")) && id.size() > 4;
}

std::string device_value(const std::string& part, const Given& given) {
  const std::string_view id = trim(part);
  if (id.empty())
    throw UsageError("{}: a device is missing between the commas; write it like --gpus 0,1", given.shown());
  if (is_uuid(id)) return std::string(id);
  const auto number = parse_int(id, 0, 1'000'000);
  if (!number)
    throw UsageError("{}: \"{}\" is not a number or a UUID (GPU-... or MIG-...); write it like --gpus 0,1",
                     given.shown(), printable(id));
  return std::to_string(*number);
}

bool is_variable_name(std::string_view name) {
  const auto allowed = [](unsigned char c) { return std::isalnum(c) || c == '_'; };
  return !name.empty() && !std::isdigit(static_cast<unsigned char>(name[0])) &&
         std::all_of(name.begin(), name.end(), allowed);
}

int local_rank_value(const std::string& part, const Given& given) {
  const auto rank = parse_int(trim(part), 0, kMaxProcesses - 1);
  if (!rank)
    throw UsageError("{}: \"{}\" is not a local rank; write all, none or ranks like 0,1", given.shown(),
                     printable(part));
  return static_cast<int>(*rank);
}

}  // namespace

std::string text_value(const Given& given) {
  if (trim(given.text).empty()) throw UsageError("{}: the value is empty", given.shown());
  return given.text;
}

std::string job_id_value(const Given& given) {
  const auto bad = [](unsigned char c) { return c <= ' ' || c == '/' || c == 0x7F; };
  const std::string id = text_value(given);
  if (id.size() > kMaxJobId || id.front() == '.' || std::any_of(id.begin(), id.end(), bad))
    throw UsageError("{}: a job id names files and keys: at most {} characters, no space, no slash, no dot in front",
                     given.shown(), kMaxJobId);
  return id;
}

std::string processes_value(const Given& given) {
  for (const char* word : {"gpu", "cpu", "auto"})
    if (given.text == word) return word;
  const auto number = parse_int(given.text, 1, kMaxProcesses);
  if (!number)
    throw UsageError(
        "{}: must be a whole number from 1 to {} (a machine has no more ports, and every process needs "
        "one), or gpu or cpu",
        given.shown(), kMaxProcesses);
  return std::to_string(*number);
}

std::pair<int, int> nodes_value(const Given& given) {
  constexpr int kMaxNodes = 65536;
  const size_t colon = given.text.find(':');
  const std::string_view text = given.text;
  const auto min = parse_int(text.substr(0, colon), 1, kMaxNodes);
  const auto max = colon == std::string::npos ? min : parse_int(text.substr(colon + 1), 1, kMaxNodes);
  if (!min || !max) throw UsageError("{}: must be a whole number from 1 to {}, or MIN:MAX", given.shown(), kMaxNodes);
  if (*min > *max) throw UsageError("{}: the smallest number comes first; write {}:{}", given.shown(), *max, *min);
  return {static_cast<int>(*min), static_cast<int>(*max)};
}

int elastic_level_value(const Given& given) {
  return int_value(given, -1, 1, "-1: the loss of a machine ends the job; 0: a failing machine leaves; 1: it restarts");
}

std::vector<std::string> devices_value(const Given& given) {
  std::vector<std::string> devices;
  for (const std::string& part : split(given.text, ',')) {
    devices.push_back(device_value(part, given));
    if (std::count(devices.begin(), devices.end(), devices.back()) > 1)
      throw UsageError("{}: {} is in the list twice; for several processes on one GPU use -n", given.shown(),
                       devices.back());
  }
  if (devices.empty())
    throw UsageError(
        "{}: the list is empty; leave the option out for all visible GPUs, or set CUDA_VISIBLE_DEVICES=-1 "
        "for none",
        given.shown());
  return devices;
}

std::vector<HostSlots> ips_value(const Given& given) {
  std::vector<HostSlots> ips;
  std::set<std::string> seen;
  for (const std::string& part : split(given.text, ',')) {
    if (trim(part).empty())
      throw UsageError("{}: a host is missing between the commas; write --ips a,b without spaces", given.shown());
    ips.push_back({.host = parse_host(part, given.shown())});
    if (!seen.insert(canonical_host(ips.back().host)).second)
      throw UsageError("{}: {} is in the list twice; every machine is named once", given.shown(), ips.back().host);
  }
  if (ips.empty())
    throw UsageError("{}: the list is empty; name every machine, the first one first, like --ips 10.0.0.1,10.0.0.2",
                     given.shown());
  return ips;
}

std::chrono::milliseconds link_timeout_value(const Given& given) {
  const auto time = duration_value(given);
  if (time < std::chrono::seconds(1)) throw UsageError("{}: must be 1s or more", given.shown());
  return time;
}

uint16_t port_value(const Given& given, uint16_t low) {
  return static_cast<uint16_t>(int_value(given, low, 65535));
}

Endpoint page_address_value(const Given& given) {
  constexpr int kMaxPort = 65535;
  const std::string_view text = given.text;
  if (const auto port = parse_int(text, 0, kMaxPort)) return {"127.0.0.1", static_cast<uint16_t>(*port)};
  if (text.ends_with(":0")) return parse_endpoint(text.substr(0, text.size() - 2), given.source, 0);
  return parse_endpoint(text, given.source);
}

Bind bind_value(const Given& given) {
  if (given.text == "none") return Bind::none;
  if (given.text == "core") return Bind::core;
  if (given.text == "numa") return Bind::numa;
  throw UsageError("{}: must be none, core or numa", given.shown());
}

Progress progress_value(const Given& given) {
  if (given.text == "auto") return Progress::automatic;
  if (given.text == "on") return Progress::on;
  if (given.text == "off") return Progress::off;
  throw UsageError("{}: must be auto, on or off", given.shown());
}

void set_tee(const Given& given, Request& request) {
  request.tee_all = given.text == "all";
  request.tee.clear();
  if (request.tee_all || given.text == "none") return;
  std::set<int> ranks;
  for (const std::string& part : split(given.text, ',')) ranks.insert(local_rank_value(part, given));
  if (ranks.empty()) throw UsageError("{}: write all, none or local ranks like 0,1", given.shown());
  request.tee.assign(ranks.begin(), ranks.end());
}

std::pair<std::string, std::string> variable_value(const Given& given) {
  const size_t equals = given.text.find('=');
  if (equals == std::string::npos) throw UsageError("{}: has no \"=\"; write it like --env NAME=VALUE", given.shown());
  const std::string name = given.text.substr(0, equals);
  if (!is_variable_name(name))
    throw UsageError("{}: \"{}\" cannot name a variable; write it like --env NAME=VALUE", given.shown(),
                     printable(name));
  return {name, given.text.substr(equals + 1)};
}

std::pair<int, std::string> wrap_value(const Given& given) {
  const size_t colon = given.text.find(':');
  const auto rank = parse_int(std::string_view(given.text).substr(0, colon), 0, INT32_MAX);
  if (colon == std::string::npos || !rank)
    throw UsageError("{}: must be RANK:CMD, like --wrap '0:gdb --args'", given.shown());
  const std::string command(trim(std::string_view(given.text).substr(colon + 1)));
  if (command.empty()) throw UsageError("{}: the command behind the colon is missing", given.shown());
  return {static_cast<int>(*rank), command};
}

}  // namespace trireme::launch
