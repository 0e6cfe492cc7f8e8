// Small functions on text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trireme {

/// "a,b,,c" at ',' -> {"a","b","","c"}; an empty text gives no parts.
std::vector<std::string> split(std::string_view text, char separator);
std::string join(const std::vector<std::string>& parts, std::string_view separator);
/// The first `most` parts, and how many there are besides: "a, b and 3 more".
std::string join_some(std::vector<std::string> parts, size_t most, std::string_view separator = ", ");
std::string_view trim(std::string_view text);
/// "rank 1", "ranks 0, 2-7".
std::string ranks_words(const std::vector<int>& ranks);
/// "0, 2-7" of {0, 2, 3, 4, 5, 6, 7}.
std::string rank_list(std::vector<int> ranks);
/// Without the byte order mark with which some editors begin a file.
std::string_view without_byte_order_mark(std::string_view text);
std::string to_lower(std::string_view text);
std::string to_hex(std::string_view bytes);
/// The bytes of pairs of hexadecimal digits; reading ends at the first thing that is none.
std::string from_hex(std::string_view hex);

/// A whole decimal number within [low, high], or nothing. No sign but '-', no spaces, no trailing text.
std::optional<int64_t> parse_int(std::string_view text, int64_t low, int64_t high);

/// A number as fmt's {:a} writes it, "-0x1.8p-1", "inf" or "nan", to the last bit and whatever the locale; or nothing.
std::optional<double> parse_hex_real(std::string_view text);

/// The candidate nearest to `word` by edit distance, when near enough to be a likely slip.
std::optional<std::string> closest(std::string_view word, const std::vector<std::string>& candidates);

/// Valid UTF-8 with control and broken bytes shown as \xNN: fit for a terminal and for JSON. Tabs stay.
std::string printable(std::string_view bytes);
/// The same for a text of several lines, which stay lines.
std::string printable_lines(std::string_view bytes);

/// The text of an errno value, thread-safe.
std::string errno_text(int number);

}  // namespace trireme
