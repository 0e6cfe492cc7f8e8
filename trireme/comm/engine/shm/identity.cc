#include "trireme/comm/engine/shm/identity.h"

#include <fmt/core.h>
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "trireme/comm/engine/shm/arena.h"
#include "trireme/core/error.h"
#include "trireme/core/file.h"
#include "trireme/core/text.h"

namespace trireme::comm::shm {
namespace {

std::bitset<1024> allowed_cpus() {
  cpu_set_t set;
  std::bitset<1024> cpus;
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return cpus;
  for (size_t i = 0; i < cpus.size() && i < CPU_SETSIZE; ++i) cpus[i] = CPU_ISSET(i, &set);
  return cpus;
}

// The bitset's digits in bytes, so that a line of the store stays short.
std::string pack(const std::bitset<1024>& cpus) {
  std::string bytes(cpus.size() / 8, '\0');
  for (size_t i = 0; i < cpus.size(); ++i)
    if (cpus[i]) bytes[i / 8] = static_cast<char>(bytes[i / 8] | (1 << (i % 8)));
  return to_hex(bytes);
}

std::bitset<1024> unpack(std::string_view hex) {
  const std::string bytes = from_hex(hex);
  std::bitset<1024> cpus;
  for (size_t i = 0; i < cpus.size() && i / 8 < bytes.size(); ++i) cpus[i] = (bytes[i / 8] >> (i % 8)) & 1;
  return cpus;
}

}  // namespace

ProcessIdentity this_process() {
  const auto start = start_time_of(::getpid());
  if (!start) throw SystemError(errno, "cannot read /proc/{}/stat: is /proc mounted?", ::getpid());
  ProcessIdentity me{this_host(), ::getpid(), *start, allowed_cpus()};
  if (const Arena* arena = Arena::of_process(); arena != nullptr && arena->is_open()) {
    me.arena_fd = arena->fd();
    me.arena_bytes = arena->capacity();
  }
  return me;
}

std::optional<std::string> difference(const HostIdentity& a, const HostIdentity& b) {
  if (a.boot_id != b.boot_id) return fmt::format("boot id {} and {}: not one machine", a.boot_id, b.boot_id);
  if (a.ipc_namespace != b.ipc_namespace)
    return fmt::format("ipc namespace {} and {}: containers that do not share it", a.ipc_namespace, b.ipc_namespace);
  if (a.pid_namespace != b.pid_namespace)
    return fmt::format("pid namespace {} and {}: containers that do not share it", a.pid_namespace, b.pid_namespace);
  return std::nullopt;
}

std::string encode(const ProcessIdentity& identity) {
  return fmt::format("{} {} {} {} {} {} {} {}", identity.host.boot_id, identity.host.ipc_namespace,
                     identity.host.pid_namespace, identity.pid, identity.start_time, pack(identity.cpus),
                     identity.arena_fd, identity.arena_bytes);
}

ProcessIdentity decode_identity(std::string_view text) {
  const auto words = split(text, ' ');
  const auto number = [&](size_t i) { return i < words.size() ? parse_int(words[i], -1, INT64_MAX) : std::nullopt; };
  const auto ipc = number(1), pids = number(2), pid = number(3), start = number(4), fd = number(6), bytes = number(7);
  if (words.size() != 8 || !ipc || !pids || !pid || !start || !fd || !bytes)
    throw PeerError("a rank's identity reads '{}': another version of Trireme?", printable(text));
  return {{words[0], static_cast<uint64_t>(*ipc), static_cast<uint64_t>(*pids)},
          static_cast<pid_t>(*pid),
          static_cast<uint64_t>(*start),
          unpack(words[5]),
          static_cast<int>(*fd),
          static_cast<size_t>(*bytes)};
}

std::vector<ProcessIdentity> exchange_identities(Store& store, const std::string& prefix, RankInfo me,
                                                 Deadline deadline) {
  store.set(fmt::format("{}identity/{}", prefix, me.rank), encode(this_process()));
  std::vector<ProcessIdentity> all;
  for (int rank = 0; rank < me.size; ++rank)
    all.push_back(decode_identity(store.get(fmt::format("{}identity/{}", prefix, rank), deadline)));
  return all;
}

std::optional<uint64_t> start_time_in(std::string_view stat) {
  // "pid (any name) state ppid …": the name may hold spaces and brackets, so count from the last bracket.
  const size_t bracket = stat.rfind(')');
  if (bracket == std::string_view::npos || bracket + 2 > stat.size()) return std::nullopt;
  const auto words = split(trim(stat.substr(bracket + 1)), ' ');
  constexpr size_t kState = 0, kThreads = 17, kStartTime = 19;
  if (words.size() <= kStartTime) return std::nullopt;
  // A zombie with threads left is a program whose main thread ended alone.
  const bool remains = words[kState] == "Z" || words[kState] == "X";
  if (remains && parse_int(words[kThreads], 2, INT64_MAX) == std::nullopt) return std::nullopt;
  const auto start = parse_int(words[kStartTime], 0, INT64_MAX);
  return start ? std::optional(static_cast<uint64_t>(*start)) : std::nullopt;
}

std::optional<uint64_t> start_time_of(pid_t pid) {
  const auto stat = read_file(fmt::format("/proc/{}/stat", pid));
  return stat ? start_time_in(*stat) : std::nullopt;
}

bool is_alive(pid_t pid, uint64_t start_time) {
  return start_time_of(pid) == start_time;
}

}  // namespace trireme::comm::shm
