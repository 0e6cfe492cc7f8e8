// How far a job is, in one line, for the terminal of its launcher and for `trireme top`. Pure.
//
//   progress_line(totals_of(job.ranks))
//     // "epoch 2/5, step 120/600, 1280 samples/s, loss 0.4321, acc 0.9125, ETA 0:02:10; the others wait for rank 1"
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "trireme/launch/live/job_totals.h"

namespace trireme::launch {

inline constexpr const char* kNoNumber = "-";

/// Parts that are not known are left out. "" before the first step.
std::string progress_line(const JobTotals& totals);

/// The first part of it: "epoch 2/5, step 120/600, 1280 samples/s, loss 0.4321, acc 0.9125, ETA 0:02:10".
std::string progress_words(const JobTotals& totals);
/// "; the others wait for rank 1", or nothing.
std::string slowest_words(const JobTotals& totals);

/// "0.4321", or "-" where no loss is reported.
std::string loss_text(const std::map<std::string, double>& values);
/// "12.3", "1280"; "-" when it is not known.
std::string speed_text(double per_second);
/// "0:02:10"
std::string duration_text(int64_t ms);
/// The first columns of a line of UTF-8.
std::string clipped(const std::string& text, size_t columns);

}  // namespace trireme::launch
