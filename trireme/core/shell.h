// A word as it can be pasted into a shell.
//
//   shell_word("a=./b,2")  ->  a=./b,2
//   shell_word("it's")     ->  'it'\''s'
#pragma once

#include <string>
#include <string_view>

namespace trireme {

/// In quotes unless every shell takes each of its characters for itself.
inline std::string shell_word(std::string_view word) {
  constexpr std::string_view kPlain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789@%+=:,./-_";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string_view::npos) return std::string(word);
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? std::string_view("'\\''") : std::string_view(&c, 1);
  return quoted + "'";
}

}  // namespace trireme
