// How a reduction joins the elements of the ranks.
#pragma once

#include <cstdint>

namespace trireme {

enum class ReduceOp : uint8_t { sum, prod, min, max, avg };

}  // namespace trireme
