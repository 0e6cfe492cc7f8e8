// Tells two runs of a function apart by the operators of libtorch that it calls. Internal to this folder.
#pragma once

#include <cstdint>
#include <functional>

namespace trireme::train {

/// A hash of the operators that `run` calls on this thread and of the numbers that the host gives them: integers,
/// floats, lists of integers, and the values of CPU tensors without dimensions. A tensor's other properties do not
/// count.
uint64_t operators_of(const std::function<void()>& run);

}  // namespace trireme::train
