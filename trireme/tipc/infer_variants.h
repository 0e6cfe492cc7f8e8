// The alternatives of the inference program, multiplied out: device x (threads on a CPU) x batch size x precision.
#pragma once

#include <string>
#include <vector>

#include "trireme/tipc/case.h"

namespace trireme::tipc {

/// The parts of a value between '|'. UsageError when one of them is empty.
std::vector<std::string> alternatives(const Entry& entry);
/// As above, and none is there twice.
std::vector<std::string> distinct_alternatives(const Entry& entry);

/// UsageError when a value of the entry, which becomes part of a file's name, could lead elsewhere or not be read.
void check_name_part(const Entry& entry, const std::string& value);

/// `inference` is the command that gets the flags.
std::vector<InferVariant> infer_variants(const ConfigText& config, const Words& inference);

}  // namespace trireme::tipc
