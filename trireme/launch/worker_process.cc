#include "trireme/launch/worker_process.h"

#include "trireme/core/env.h"

namespace trireme::launch {

VariableMap worker_variables(const WorkerPlan& plan, const WorkerResources& resources) {
  VariableMap variables;
  for (const auto& [name, value] : env::all()) variables[name] = value;
  for (const std::string& name : plan.unset) variables.erase(name);
  variables["TRIREME_STORE"] = to_string(resources.store);
  variables["TRIREME_TOKEN_FD"] = std::to_string(resources.token_fd);
  variables["TRIREME_LISTEN_FD"] = std::to_string(resources.listen_fd);
  variables.erase("TRIREME_WATCH_FD");  // that of a job in which this one runs
  if (resources.watch_fd >= 0) variables["TRIREME_WATCH_FD"] = std::to_string(resources.watch_fd);
  for (const auto& [name, value] : plan.environment) variables[name] = value;
  return variables;
}

proc::ProcessSpec worker_process(const WorkerPlan& plan, const WorkerResources& resources,
                                 const VariableMap& variables) {
  proc::ProcessSpec spec{.command = plan.command, .inherited = {resources.token_fd, resources.listen_fd}};
  if (resources.watch_fd >= 0) spec.inherited.push_back(resources.watch_fd);
  for (const auto& [name, value] : variables) spec.environment.push_back(name + "=" + value);
  return spec;
}

Ending to_ending(const proc::Event& exited) {
  return {.exited = exited.status.signal == 0,
          .code = exited.status.code,
          .signal = exited.status.signal,
          .core_dumped = exited.status.core_dumped,
          .exec_errno = exited.exec_error};
}

}  // namespace trireme::launch
