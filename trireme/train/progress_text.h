// The words of the progress bar: numbers, times, lines and bars.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "trireme/train/run.h"

namespace trireme::train {

/// "0.3012"; "3.0120e-04" for what four digits would not show.
std::string number_text(double value);
/// "12ms/step", "850us/step", "1.5s/step".
std::string pace_text(double seconds_per_step);
/// "0:07", "12:30", "3:05:00".
std::string duration_text(double seconds);

struct ProgressText {
  int64_t step = 0;  ///< how many are done
  int64_t steps = 0;
  Results logs = {};
  double seconds = 0;  ///< for all that is done
};

/// "step  10/938 - loss: 0.3012 - 12ms/step"
std::string progress_line(const ProgressText& text);
/// "step  10/938 [==>......] - ETA: 0:11 - loss: …", the bar as long as leaves room within `columns`, cut off there.
std::string progress_bar(const ProgressText& text, size_t columns);
/// " - avg_reader_cost: 0.00120 sec - avg_batch_cost: 0.01080 sec - ips: 5333.3 samples/sec"
std::string cost_text(const Run& run);

}  // namespace trireme::train
