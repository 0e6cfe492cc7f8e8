// The options of a command line, as a table. The parser, the spelling hints, the help text and the tables in docs/ are
// made from it: to add an option, add a row. All programs follow the same rules:
//
//   --opt v    --opt=v       the same for short options: -n 2, -n=2; underscores and hyphens are equal in names
//   --host --port 80         an error: an option is not a value (write --host=--port to mean it)
//   --opt a --opt b          the last one wins, except where the help says "may be repeated"
//   --help [TOPIC]    -h     ends the parsing: nothing after it is read
//   --                       everything after it is an operand
//
//   CommandSyntax syntax_of(ServeOptions& options) {
//     return {.command = "trireme serve", .options = {
//         {{"--port"}, "N", "port to listen on (default: 8080)", [&](const Given& g) { options.port = port_value(g);
//         }}}};
//   }
//   const CommandLine line = parse_command_line(syntax_of(options), {"--port", "80"});
//   if (line.help) print(help_for(syntax_of(options), *line.help));
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/core/option_values.h"

namespace trireme {

enum class Takes {
  nothing,      // a flag; --flag=false is understood
  value,        // --opt v or --opt=v
  boolean,      // --opt, --opt true, --opt=true
  assignments,  // --opt K=V [K=V …]: further words with "=" belong to it
};

enum class Support {
  full,
  ignored,  // accepted without effect
  refused,  // known, but an error: no spelling hint names it
};

/// One row of a table, without what it does.
struct OptionSpec {
  std::vector<std::string> names;  // any spelling; the first is the one shown
  std::string value;               // name of the value in help texts; empty: a flag
  std::string help;
  Takes takes = Takes::value;
  Support support = Support::full;

  /// By any of its names, with hyphens or underscores.
  bool has_name(std::string_view name) const;
};

struct Option : OptionSpec {
  /// `what` stores the value; it throws UsageError when the value does not fit. Without `own_value` it is a flag.
  Option(std::vector<std::string> own_names, std::string own_value, std::string own_help,
         std::function<void(const Given&)> what, Takes how = Takes::value);
  std::function<void(const Given&)> apply;
};

/// Stores what `read` makes of the value: {{"--port"}, "N", "…", into(options.port, int_in(0, 65535))}
template <typename Field, typename Read>
std::function<void(const Given&)> into(Field& field, Read read) {
  return [&field, read](const Given& given) { field = static_cast<Field>(read(given)); };
}
template <typename Field>
std::function<void(const Given&)> text_into(Field& field) {
  return [&field](const Given& given) { field = given.text; };
}
inline auto int_in(int64_t low, int64_t high) {
  return [=](const Given& given) { return int_value(given, low, high); };
}

/// Words that are not options.
enum class Operands {
  refused,
  anywhere,  // between the options
  program,   // the first one ends the options: PROGRAM and its arguments, untouched
};

/// All that a command knows of its command line.
struct CommandSyntax {
  std::string command = {};  // "trireme serve"
  std::string usage = {};    // behind the command: "--model-dir DIR [options]"
  std::string about = {};    // what the command does
  std::string notes = {};    // behind the options: examples, exit codes
  Operands operands = Operands::refused;
  std::string operand_advice = {};  // for Operands::refused: where such a word may belong
  std::vector<Option> options = {};
};

struct CommandLine {
  std::vector<std::string> operands;
  std::optional<std::string> help;  // --help: its topic, or ""
};

/// Applies the options in their order. Throws UsageError for the first wrong word.
CommandLine parse_command_line(const CommandSyntax& syntax, const std::vector<std::string>& words);

/// The topic of --help that asks for the option table in Markdown, for docs/.
inline constexpr std::string_view kMarkdown = "--markdown";
/// The one that asks for a page for `man`.
inline constexpr std::string_view kManual = "--man";

}  // namespace trireme
