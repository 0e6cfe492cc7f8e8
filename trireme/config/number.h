// Numbers as people write them into configurations: 120, 1e-4 (a text by YAML 1.1), 1.0/255.0, (2 + 1) * 64.
#pragma once

#include <optional>
#include <string_view>

namespace trireme::config {

/// The value of + - * / and brackets over decimal numbers; nothing when the text is anything else, when the result is
/// not finite, or for an integer with leading zeros, which YAML 1.1 would read as octal.
std::optional<double> evaluate(std::string_view text);

}  // namespace trireme::config
