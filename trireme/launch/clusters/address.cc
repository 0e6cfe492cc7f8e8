#include <algorithm>
#include <chrono>
#include <string_view>

#include "trireme/core/error.h"
#include "trireme/core/net.h"
#include "trireme/core/text.h"
#include "trireme/launch/clusters/cluster.h"
#include "trireme/launch/machine/program.h"
#include "trireme/launch/worker_environment.h"
#include "trireme/proc/process_set.h"

namespace trireme::launch {
namespace {

bool resolves(const std::string& host) try {
  resolve_ip(host);
  return true;
} catch (const Error&) {
  return false;
}

constexpr size_t kMaxAnswer = 64 << 10;

/// What a command prints within a few seconds; "" when it is not here or cannot be started.
std::string output_of_scheduler(const std::vector<std::string>& command, const Environment& variables) try {
  proc::ProcessSpec spec;
  spec.command = resolve_program(command, value_of(variables, "PATH").value_or("/usr/bin:/bin"), /*no_python=*/true);
  for (const auto& [name, text] : variables) spec.environment.push_back(name + "=" + text);
  proc::ProcessSet set;
  set.start(spec);
  std::string text;
  const Deadline deadline = Deadline::in(std::chrono::seconds(5));
  while (set.running() > 0 && text.size() < kMaxAnswer && !deadline.passed())
    for (const proc::Event& event : set.wait(deadline))
      if (event.kind == proc::Event::Kind::output && event.stream == proc::Stream::out) text += event.bytes;
  text.resize(std::min(text.size(), kMaxAnswer));
  return text;
} catch (const Error&) {
  return "";
}

/// "NodeName=d1 … NodeAddr=10.0.0.1 NodeHostName=…"
std::string slurm_address(const std::string& host, const Environment& variables) {
  constexpr std::string_view kName = "NodeAddr=";
  for (const std::string& word :
       split(output_of_scheduler({"scontrol", "--oneliner", "show", "node", host}, variables), ' '))
    if (word.starts_with(kName)) return word.substr(kName.size());
  return host;
}

}  // namespace

std::string cluster_address(const std::string& host, const Environment& variables) {
  if (resolves(host)) return host;
  if (value_of(variables, "SLURM_JOB_ID")) return slurm_address(host, variables);
  if (!is_indexed_pod(variables)) return host;
  const std::string own = full_host_name();
  const size_t dot = own.find('.');
  return dot == std::string::npos ? host : host + own.substr(dot);
}

}  // namespace trireme::launch
