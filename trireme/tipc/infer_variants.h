// The alternatives of the inference program, multiplied out: device x (threads on a CPU) x batch size x precision.
#pragma once

#include <string>
#include <vector>

#include "trireme/tipc/case.h"

namespace trireme::tipc {

/// The parts of a value between '|'. UsageError when one of them is empty.
std::vector<std::string> alternatives(const Entry& entry);

/// `inference` is the program that is told.
std::vector<InferVariant> infer_variants(const ConfigText& config, const Words& inference);

}  // namespace trireme::tipc
