#include "trireme/launch/options/hostfile.h"

#include <arpa/inet.h>

#include <algorithm>
#include <map>
#include <sstream>

#include "trireme/core/error.h"
#include "trireme/core/file.h"
#include "trireme/core/text.h"

namespace trireme::launch {
namespace {

// The address in its shortest form, when `text` is one of that family.
std::optional<std::string> normal_address(int family, const std::string& text) {
  in6_addr address{};
  char shortest[INET6_ADDRSTRLEN] = {};
  const std::string without_scope = text.substr(0, text.find('%'));
  if (::inet_pton(family, without_scope.c_str(), &address) != 1) return std::nullopt;
  ::inet_ntop(family, &address, shortest, sizeof shortest);
  return shortest + text.substr(without_scope.size());
}

bool only_of(std::string_view text, std::string_view allowed) {
  return text.find_first_not_of(allowed) == std::string_view::npos;
}

constexpr std::string_view kNameCharacters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";

std::string_view without_brackets(std::string_view text) {
  return text.size() >= 2 && text.front() == '[' && text.back() == ']' ? text.substr(1, text.size() - 2) : text;
}

void check_name(const std::string& host, std::string_view what) {
  if (only_of(host, "0123456789.") && !normal_address(AF_INET, host))
    throw UsageError("{}: \"{}\" is not an IPv4 address; write four numbers from 0 to 255", what, host);
  if (!only_of(host, kNameCharacters) || host.front() == '-' || host.size() > 253)
    throw UsageError("{}: \"{}\" is not a host name or address", what, printable(host));
}

int parse_slots(std::string_view digits, std::string_view what) {
  const auto slots = parse_int(digits, 1, kMaxProcesses);
  if (!slots)
    throw UsageError("{}: slots \"{}\" must be a whole number from 1 to {}", what, printable(digits), kMaxProcesses);
  return static_cast<int>(*slots);
}

// "host:4" and "[v6]:4" have slots; a bare IPv6 address has none.
HostSlots parse_host_with_slots(std::string_view text, std::string_view what) {
  const bool bare_v6 = !text.starts_with('[') && std::count(text.begin(), text.end(), ':') >= 2;
  const size_t colon = text.rfind(':');
  if (bare_v6 || colon == std::string_view::npos || text.ends_with(']')) return {parse_host(text, what), 0};
  return {parse_host(text.substr(0, colon), what), parse_slots(text.substr(colon + 1), what)};
}

// "slots=4" or "max_slots=8" of a hostfile's line.
void apply_setting(const std::string& word, const std::string& what, HostSlots& host, int& max_slots) {
  const size_t equals = word.find('=');
  const std::string key = word.substr(0, equals);
  const std::string value = equals == std::string::npos ? "" : word.substr(equals + 1);
  if (equals != std::string::npos && key == "slots")
    host.slots = parse_slots(value, what);
  else if (equals != std::string::npos && (key == "max_slots" || key == "max-slots"))
    max_slots = parse_slots(value, what);
  else
    throw UsageError("{}: \"{}\" is not understood; a line is: host slots=N", what, printable(word));
}

std::optional<HostSlots> parse_line(std::string_view line, const std::string& what) {
  std::istringstream words{std::string(line.substr(0, line.find('#')))};
  std::string word;
  if (!(words >> word)) return std::nullopt;
  HostSlots host = parse_host_with_slots(word, what);
  int max_slots = kMaxProcesses;
  while (words >> word) apply_setting(word, what, host, max_slots);
  if (host.slots > max_slots) throw UsageError("{}: slots={} is more than max_slots={}", what, host.slots, max_slots);
  return host;
}

}  // namespace

std::string parse_host(std::string_view text, std::string_view what) {
  const std::string host(without_brackets(trim(text)));
  if (host.empty()) throw UsageError("{}: a host is empty", what);
  const auto colons = std::count(host.begin(), host.end(), ':');
  if (colons == 1) throw UsageError("{}: \"{}\" has a port; a host name or address alone is wanted", what, host);
  if (colons == 0)
    check_name(host, what);
  else if (!normal_address(AF_INET6, host))
    throw UsageError("{}: \"{}\" is not an IPv6 address", what, printable(host));
  return host;
}

bool is_loopback(const std::string& host) {
  const std::string name = canonical_host(host);
  return name == "localhost" || name == "::1" || (name.starts_with("127.") && only_of(name, "0123456789."));
}

std::string canonical_host(const std::string& host) {
  return normal_address(AF_INET6, host).value_or(to_lower(host));
}

std::vector<HostSlots> parse_hostfile(std::string_view text, const std::string& name) {
  std::vector<HostSlots> hosts;
  std::map<std::string, int> line_of;
  int number = 0;
  for (const std::string& line : split(text, '\n')) {
    const std::string what = fmt::format("{}:{}", name, ++number);
    const auto host = parse_line(line, what);
    if (!host) continue;
    const auto [first, is_new] = line_of.emplace(canonical_host(host->host), number);
    if (!is_new)
      throw UsageError("{}: host {} is in line {} already; give it one line with all its slots", what, host->host,
                       first->second);
    hosts.push_back(*host);
  }
  if (hosts.empty()) throw UsageError("{}: names no host; write one line for each: host slots=N", name);
  return hosts;
}

std::vector<HostSlots> read_hostfile(const std::string& path) {
  const auto text = read_file(path);
  if (!text) throw UsageError("--hostfile {}: cannot be read; check the path and its permissions", path);
  return parse_hostfile(*text, path);
}

std::vector<HostSlots> parse_host_slots(std::string_view text, std::string_view what) {
  std::vector<HostSlots> hosts;
  std::map<std::string, bool> seen;
  for (const std::string& part : split(text, ',')) {
    hosts.push_back(parse_host_with_slots(trim(part), what));
    if (!seen.emplace(canonical_host(hosts.back().host), true).second)
      throw UsageError("{}: host {} is given twice; give it once with all its slots", what, hosts.back().host);
  }
  if (hosts.empty()) throw UsageError("{}: the list of hosts is empty; write host:slots,host:slots", what);
  return hosts;
}

}  // namespace trireme::launch
