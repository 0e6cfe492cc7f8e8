#include "trireme/core/base64.h"

#include <fmt/core.h>

#include <array>
#include <cstdint>

namespace trireme {
namespace {

constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
constexpr uint8_t kNone = 0x80;  // no digit; survives an OR of four values

constexpr std::array<uint8_t, 256> make_values() {
  std::array<uint8_t, 256> values{};
  values.fill(kNone);
  for (size_t i = 0; i < kDigits.size(); ++i) values[static_cast<uint8_t>(kDigits[i])] = static_cast<uint8_t>(i);
  return values;
}

constexpr std::array<uint8_t, 256> kValues = make_values();

uint8_t value_of(char digit) {
  return kValues[static_cast<uint8_t>(digit)];
}

/// Four digits to three bytes; false when one of them is none.
bool append_group(const char* digits, std::string& bytes) {
  const uint8_t a = value_of(digits[0]), b = value_of(digits[1]), c = value_of(digits[2]), d = value_of(digits[3]);
  const uint32_t bits = uint32_t{a} << 18 | uint32_t{b} << 12 | uint32_t{c} << 6 | d;
  const char group[] = {static_cast<char>(bits >> 16), static_cast<char>(bits >> 8), static_cast<char>(bits)};
  bytes.append(group, sizeof group);
  return ((a | b | c | d) & kNone) == 0;
}

Base64Decoded first_stranger(std::string_view digits) {
  size_t at = 0;
  while (at < digits.size() && value_of(digits[at]) != kNone) ++at;
  return {.bytes = {}, .error = fmt::format("character {} is not Base64", at + 1)};
}

}  // namespace

std::string base64_encode(std::string_view bytes) {
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const std::string_view group = bytes.substr(i, 3);
    uint32_t bits = 0;
    for (size_t j = 0; j < 3; ++j) bits = bits << 8 | (j < group.size() ? static_cast<unsigned char>(group[j]) : 0u);
    for (size_t j = 0; j < 4; ++j) text += j <= group.size() ? kDigits[bits >> (18 - 6 * j) & 63] : '=';
  }
  return text;
}

Base64Decoded base64_decode(std::string_view text) {
  if (text.size() % 4 != 0)
    return {.bytes = {}, .error = fmt::format("{} characters are not a multiple of four", text.size())};
  const size_t padding = text.ends_with("==") ? 2 : text.ends_with('=') ? 1 : 0;
  text.remove_suffix(padding);
  Base64Decoded decoded;
  decoded.bytes.reserve(text.size() / 4 * 3 + 3);
  size_t at = 0;
  for (; at + 4 <= text.size(); at += 4)
    if (!append_group(text.data() + at, decoded.bytes)) return first_stranger(text);
  if (padding == 0) return decoded;
  std::string last(text.substr(at));
  last.append(padding, kDigits[0]);
  if (!append_group(last.data(), decoded.bytes)) return first_stranger(text);
  decoded.bytes.resize(decoded.bytes.size() - padding);
  return decoded;
}

}  // namespace trireme
