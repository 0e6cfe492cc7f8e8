// How fast a training was, and how much faster on more devices.
//
//   throughput = samples a second, of all devices together
//   speed-up   = throughput(N) / throughput(1)          efficiency = speed-up / N
#pragma once

#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "trireme/tipc/plan.h"

namespace trireme::tipc {

struct Throughput {
  double ips = 0;    ///< of one process, as its log says
  std::string unit;  ///< "samples/s"
  std::string loss;  ///< the last one of the log; "" when there is none
  size_t lines = 0;  ///< how many it is the mean of
};

/// From the lines with `ips: 123.4 samples/s` of a training's log, evaluation apart. The first ones are left out, for
/// warming up: half of them, 100 at most. Nothing when there are none.
std::optional<Throughput> parse_throughput(std::istream& log);

struct Measurement {
  Measured what;
  Throughput throughput;
  double seconds = 0;
  double total() const { return throughput.ips * what.devices; }
};

/// One JSON object, with the names that Paddle's benchmark tools have.
std::string throughput_json(const std::string& model_name, const Measurement& measurement);

/// A row for each measurement, by the number of devices; the speed-up against the one with the fewest devices, of the
/// same kind, batch size and precision.
std::string speedup_table(std::vector<Measurement> measurements);

}  // namespace trireme::tipc
