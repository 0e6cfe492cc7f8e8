// A job's state as Prometheus reads it (text format 0.0.4). Pure.
#pragma once

#include <string>

#include "trireme/launch/live/job_totals.h"

namespace trireme::launch {

std::string metrics_text(const JobView& job);

}  // namespace trireme::launch
