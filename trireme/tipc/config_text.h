// A test case as text: every line checked against its format, then changed by `--set`, then ready to be understood
// (case.h).
//
//   ConfigText text = parse_config(read_file(path), path);
//   set_value(text, "gpu_list=cpu:2");
//   text.at("gpu_list").value == "cpu:2"
//
// Whatever is wrong is a UsageError with file, line and key. Handled: CRLF, a byte order mark, values with ':' in them,
// blank lines at the end.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "trireme/tipc/config_format.h"

namespace trireme::tipc {

/// A `key:value` line under the name that its format gives it.
struct Entry {
  std::string name = {};
  std::string key;
  std::string value;
  std::string origin;  ///< "file:4: gpu_list" or "--set gpu_list": how messages begin
  size_t line = 0;
};

struct ConfigText {
  std::string file;
  const Format* format = nullptr;
  std::vector<Entry> entries = {};    ///< by line, without headers and fillers
  std::vector<Entry> benchmark = {};  ///< of the section train_benchmark_params: name and key are one

  /// The entry of that name; null where the format has none.
  const Entry* find(std::string_view name) const;
  /// As find(), for names that both formats have.
  const Entry& at(std::string_view name) const;
};

ConfigText parse_config(std::string_view text, const std::string& file);
/// Reads the file; UsageError when it cannot be read.
ConfigText read_config(const std::string& file);

/// "KEY=VALUE" or "NAME=VALUE" changes a value; "6=KEY:VALUE" replaces a line. UsageError when no line or more than one
/// is meant.
void set_value(ConfigText& config, const std::string& assignment);

}  // namespace trireme::tipc
