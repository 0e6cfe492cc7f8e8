// A command line as words and back, with a shell's quotes but without its variables, patterns and pipes.
//
//   split_words("sh -c 'exit 7'")      ->  {"sh", "-c", "exit 7"}
//   show_words({"sh", "-c", "exit 7"}) ->  "sh -c 'exit 7'"
//   shell_word("it's")                 ->  'it'\''s'
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trireme {

/// Words at blanks. '…' keeps all characters, "…" all but \" and \\, a backslash the one behind it. Nothing when a
/// quote is not closed or the last character is a backslash.
std::optional<std::vector<std::string>> split_words(std::string_view text);

/// The word as it can be pasted into a shell: in quotes unless every shell takes each of its characters for itself.
std::string shell_word(std::string_view word);

/// The words as they can be pasted into a shell.
std::string show_words(const std::vector<std::string>& words);

}  // namespace trireme
