#include "trireme/tipc/mode.h"

#include <algorithm>

#include "trireme/core/error.h"
#include "trireme/core/text.h"

namespace trireme::tipc {

const std::vector<std::string>& mode_names() {
  static const std::vector<std::string> names = {"lite_train_lite_infer", "lite_train_whole_infer",
                                                 "whole_train_whole_infer", "whole_infer", "benchmark_train"};
  return names;
}

Mode parse_mode(std::string_view text, std::string_view what) {
  const auto found = std::find(mode_names().begin(), mode_names().end(), text);
  if (found != mode_names().end()) return static_cast<Mode>(found - mode_names().begin());
  const auto near = closest(text, mode_names());
  throw UsageError("{}: there is no mode '{}'{}; there are {}", what, printable(text),
                   near ? fmt::format(" (did you mean {}?)", *near) : "", join(mode_names(), ", "));
}

const std::string& to_string(Mode mode) {
  return mode_names()[static_cast<size_t>(mode)];
}

bool trains_lite(Mode mode) {
  return mode != Mode::whole_train_whole_infer && mode != Mode::whole_infer;
}

}  // namespace trireme::tipc
