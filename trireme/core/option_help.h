// Help texts and Markdown tables, made from option tables.
//
//   usage: trireme serve --model-dir DIR [options]
//
//   Answers HTTP requests …
//
//     --port N        port to listen on (default: 8080)
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "trireme/core/options.h"

namespace trireme {

/// Usage, what the command does, its options, its notes.
std::string help_text(const CommandSyntax& syntax);

/// The options as a Markdown table, as docs/ show it.
std::string markdown_table(const CommandSyntax& syntax);

/// What --help prints: help_text() for "", markdown_table() for kMarkdown, manual_of() (manual.h) for kManual;
/// UsageError for another topic.
std::string help_for(const CommandSyntax& syntax, std::string_view topic);

// --- the parts, for commands that arrange their help by themselves

/// Those that a user may give, then --help. They point into `syntax`.
std::vector<const OptionSpec*> shown_options(const CommandSyntax& syntax);
std::vector<const OptionSpec*> shown_options(CommandSyntax&&) = delete;

/// Words in lines of at most 100 columns: the first line behind `start`, the others behind `column` spaces.
std::string wrapped(std::string start, size_t column, std::string_view text);

/// "  -n, --nproc_per_node N    processes on each node", the text from `column` on.
std::string option_line(const OptionSpec& option, size_t column);

/// "| `--nproc_per_node` `-n` N | processes on each node |", without a line end.
std::string markdown_row(const OptionSpec& option);

/// `a` `b` `c`
std::string code_list(const std::vector<std::string>& names);

}  // namespace trireme
