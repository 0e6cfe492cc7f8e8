// What a chain is run for: how long it trains, and what it infers with.
//
//   parse_mode("lite_train_lite_infer") == Mode::lite_train_lite_infer
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace trireme::tipc {

enum class Mode {
  lite_train_lite_infer,    // a few pictures, an epoch or two: does everything work?
  lite_train_whole_infer,   // as above, then inference on pictures of one's own
  whole_train_whole_infer,  // the real training
  whole_infer,              // no training: given weights or an exported model
  benchmark_train,          // only training, measured
};

const std::vector<std::string>& mode_names();
/// UsageError with the nearest name when there is no such mode; `what` says where the text came from.
Mode parse_mode(std::string_view text, std::string_view what);
const std::string& to_string(Mode mode);
/// Whether it trains on the few pictures that `prepare` makes.
bool trains_lite(Mode mode);

}  // namespace trireme::tipc
