// Base64 as etcd's JSON gateway wants its keys and values.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace trireme {

std::string base64_encode(std::string_view bytes);
/// Nothing when `text` is not padded standard Base64.
std::optional<std::string> base64_decode(std::string_view text);

}  // namespace trireme
