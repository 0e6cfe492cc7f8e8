#pragma once

namespace trireme {

inline constexpr const char* kVersion = "0.1.0";

}  // namespace trireme
