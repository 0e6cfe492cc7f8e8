#include "trireme/tipc/gpu_list.h"

#include <arpa/inet.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "trireme/core/error.h"
#include "trireme/core/text.h"

namespace trireme::tipc {
namespace {

constexpr int kMaxDevices = 1024;
constexpr const char* kForms = "it is like -1, 0, 0,1, cpu:2, 10.0.0.1,10.0.0.2;0,1 or 10.0.0.1,10.0.0.2;cpu:2";

std::string gpu_text(const std::vector<int>& gpus) {
  return fmt::format("{}", fmt::join(gpus, ","));
}

void parse_cpu(std::string_view text, std::string_view what, Placement& placement) {
  if (text == "cpu" || text == "-1") return;
  const auto count = parse_int(text.substr(4), 1, kMaxDevices);
  if (!count) throw UsageError("{}: '{}' is not a number of processes; {}", what, printable(text), kForms);
  placement.processes = static_cast<int>(*count);
}

void parse_gpus(std::string_view text, std::string_view what, Placement& placement) {
  for (const std::string& word : split(text, ',')) {
    const auto gpu = parse_int(word, 0, kMaxDevices - 1);
    if (!gpu)
      throw UsageError("{}: '{}' in '{}' is not a GPU number; {}", what, printable(word), printable(text), kForms);
    if (std::find(placement.gpus.begin(), placement.gpus.end(), *gpu) != placement.gpus.end())
      throw UsageError("{}: GPU {} is there twice", what, *gpu);
    placement.gpus.push_back(static_cast<int>(*gpu));
  }
  placement.processes = static_cast<int>(placement.gpus.size());
}

bool looks_like_a_host(std::string_view text) {
  constexpr std::string_view kHostCharacters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.:_-";
  if (text.empty() || text.front() == '-' || text.find_first_not_of(kHostCharacters) != std::string_view::npos)
    return false;
  in_addr address{};
  return text.find_first_not_of("0123456789.") != std::string_view::npos ||
         ::inet_pton(AF_INET, std::string(text).c_str(), &address) == 1;
}

void parse_hosts(std::string_view text, std::string_view what, Placement& placement) {
  std::set<std::string> seen;
  for (const std::string& host : split(text, ',')) {
    if (!looks_like_a_host(host))
      throw UsageError("{}: '{}' is not the address of a machine; {}", what, printable(host), kForms);
    if (!seen.insert(host).second) throw UsageError("{}: machine {} is there twice", what, host);
    placement.hosts.push_back(host);
  }
  if (placement.hosts.empty()) throw UsageError("{}: no machines before ';'; {}", what, kForms);
}

}  // namespace

Placement parse_placement(std::string_view text, std::string_view what) {
  Placement placement;
  const size_t semicolon = text.find(';');
  if (semicolon != std::string_view::npos) parse_hosts(text.substr(0, semicolon), what, placement);
  const std::string_view devices = semicolon == std::string_view::npos ? text : text.substr(semicolon + 1);
  if (devices.empty()) throw UsageError("{}: no devices; {}", what, kForms);
  if (devices == "cpu" || devices == "-1" || devices.starts_with("cpu:"))
    parse_cpu(devices, what, placement);
  else
    parse_gpus(devices, what, placement);
  return placement;
}

std::vector<std::string> Placement::launch_options() const {
  std::vector<std::string> words;
  if (!hosts.empty()) words = {"--ips", join(hosts, ",")};
  words.emplace_back(on_cpu() ? "-n" : "--gpus");
  words.push_back(on_cpu() ? std::to_string(processes) : gpu_text(gpus));
  return words;
}

std::string Placement::device_text() const {
  return on_cpu() ? fmt::format("cpu{}", processes) : gpu_text(gpus);
}

Placement single(const Placement& placement) {
  Placement one;
  if (!placement.on_cpu()) one.gpus = {placement.gpus.front()};
  return one;
}

}  // namespace trireme::tipc
