// A command line as words and back, with a shell's quotes but without its variables, patterns and pipes: a config can
// start any program, and nothing in it is a surprise.
//
//   split_words("sh -c 'exit 7'")     ->  {"sh", "-c", "exit 7"}
//   show_words({"sh", "-c", "exit 7"}) ->  "sh -c 'exit 7'"
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::tipc {

using Words = std::vector<std::string>;

/// Nothing when a quote is not closed.
std::optional<Words> split_words(std::string_view text);
/// What can be pasted into a shell.
std::string show_words(const Words& words);
void append(Words& words, const Words& more);

}  // namespace trireme::tipc
