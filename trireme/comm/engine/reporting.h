// An engine that says what it was waiting for when another rank failed it, before its caller gets the PeerError.
//
//   auto engine = make_reporting_engine(std::move(shm), [](const char* operation, const std::vector<int>& ranks) {
//     tell_the_launcher(operation, ranks);      // "all_reduce", {1, 2}
//   });
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "trireme/comm/engine/engine.h"

namespace trireme {

/// Called on the thread of the operation. `ranks` are those of the group that the operation needs: all others, or the
/// peer of a message.
using ReportWait = std::function<void(const char* operation, const std::vector<int>& ranks)>;

std::unique_ptr<Engine> make_reporting_engine(std::unique_ptr<Engine> engine, ReportWait report);

}  // namespace trireme
