// The table of `trireme top`, from the state that the launcher of node 0 writes every second (live.json). Pure.
//
//   for (const std::string& line : top_lines(live_job_view("log"), {.columns = 80, .rows = 24}, now)) …
//
//   mnist: running for 0:02:10, 2 ranks on 1 node
//   step 120, 1280 samples/s, loss 0.4321; compute 80 %, communication 15 %, data 5 %
//
//   rank   pid  state     host   device  step  samples/s    loss  comp  comm  data  CPU   memory  now
//      0  4711  sleeping  alpha  CPU      120        640  0.4321   70%   25%    5%  35%  1.2 GiB  all_reduce #240 …
//      1  4712  running   alpha  CPU      120        640  0.4377   90%    5%    5%  98%  1.2 GiB  in the forward pass
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "trireme/launch/live/page_json.h"

namespace trireme::launch {

struct TopSize {
  size_t columns = std::numeric_limits<size_t>::max();
  size_t rows = std::numeric_limits<size_t>::max();
};

/// No line is wider than size.columns: columns of less weight are left out, then lines are cut. When not all ranks fit,
/// the worst come first and the last line counts the others. `now_ms` since 1970, for how old the state is.
std::vector<std::string> top_lines(const JobView& job, const TopSize& size, int64_t now_ms);

}  // namespace trireme::launch
