// How the whole job ends, decided once for all nodes.
#pragma once

#include <optional>
#include <string>

#include "trireme/launch/report/failure_report.h"

namespace trireme::launch {

struct JobOutcome {
  enum class Kind {
    success,
    worker_failed,  // `culprit` tells which and how
    interrupted,    // Ctrl-C or a scheduler's SIGTERM; `signal` tells which
    node_lost,      // a launcher or its machine is gone; `reason` tells which
    aborted,        // a launcher could not go on; `reason` tells why
    node_left,      // an elastic job: a launcher was told to end, and the others go on
    node_joined,    // an elastic job: a node has come and wants to take part
  };
  Kind kind = Kind::success;
  int exit_code = 0;
  int signal = 0;
  bool final = false;  // no restart, whatever --max_restart says: a user wants the job to end, or it cannot be run
  bool coordinator = false;  // the node that is lost or leaves hosts the job's store
  bool at_once = false;      // workers get SIGKILL: another node may have taken the job over
  std::string reason = {};
  std::optional<WorkerEnding> culprit = {};

  static JobOutcome of_culprit(const WorkerEnding& culprit);
  static JobOutcome of_signal(int signal, const std::string& host);
  static JobOutcome lost(const std::string& reason);
  /// As lost(), of the node that hosts the store.
  static JobOutcome lost_coordinator(const std::string& reason);
  static JobOutcome left(int signal, const std::string& node);
  static JobOutcome joined(const std::string& node);
  static JobOutcome abort(const std::string& reason, int exit_code);
};

std::string to_json(const JobOutcome& outcome);
/// Throws PeerError when the text is not an outcome.
JobOutcome outcome_from_json(const std::string& text);

}  // namespace trireme::launch
