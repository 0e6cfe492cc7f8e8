// Base64 (RFC 4648, padded, standard alphabet): etcd's JSON and pictures in requests are written in it.
//
//   const std::string text = base64_encode("hello");            // "aGVsbG8="
//   const Base64Decoded picture = base64_decode(text);
//   if (!picture.ok()) refuse(picture.error);                   // "character 17 is not Base64"
//
// Line breaks are not Base64 here. Quick enough for megabytes. Thread-safe.
#pragma once

#include <string>
#include <string_view>

namespace trireme {

struct Base64Decoded {
  std::string bytes;
  std::string error;  ///< what is wrong with the text, and where; empty: all went well
  bool ok() const { return error.empty(); }
};

std::string base64_encode(std::string_view bytes);
/// Bits that are left over before the padding are ignored.
Base64Decoded base64_decode(std::string_view text);

}  // namespace trireme
