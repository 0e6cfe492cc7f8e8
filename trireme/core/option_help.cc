#include "trireme/core/option_help.h"

#include <fmt/core.h>

#include <algorithm>

#include "trireme/core/error.h"
#include "trireme/core/manual.h"
#include "trireme/core/text.h"

namespace trireme {
namespace {

constexpr size_t kColumns = 100;

const OptionSpec& help_option() {
  static const OptionSpec option{{"--help", "-h"}, "", "print this text", Takes::nothing};
  return option;
}

std::string flags_of(const OptionSpec& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.names)
    if (!name.starts_with("--")) names.push_back(name);
  names.push_back(option.names.front());
  return "  " + join(names, ", ") + (option.value.empty() ? "" : " " + option.value);
}

std::string without_blanks_behind(const std::string& line) {
  return line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
}

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) out += c == '|' ? "\\|" : c == '<' ? "&lt;" : std::string(1, c);
  return out;
}

/// Text as a paragraph of its own.
std::string paragraph(const std::string& text) {
  return text.empty() ? "" : "\n" + text;
}

}  // namespace

std::vector<const OptionSpec*> shown_options(const CommandSyntax& syntax) {
  std::vector<const OptionSpec*> shown;
  for (const Option& option : syntax.options)
    if (option.support == Support::full) shown.push_back(&option);
  shown.push_back(&help_option());
  return shown;
}

std::string wrapped(std::string start, size_t column, std::string_view text) {
  std::string out;
  std::string line = std::move(start);
  line.resize(std::max(column, line.size() + 1), ' ');
  for (const std::string& word : split(text, ' ')) {
    if (line.size() + word.size() > kColumns) {
      out += without_blanks_behind(line);
      line = std::string(column, ' ');
    }
    line += word + " ";
  }
  return out + without_blanks_behind(line);
}

std::string option_line(const OptionSpec& option, size_t column) {
  return wrapped(flags_of(option), column, option.help);
}

std::string code_list(const std::vector<std::string>& names) {
  std::vector<std::string> quoted;
  for (const std::string& name : names) quoted.push_back("`" + name + "`");
  return join(quoted, " ");
}

std::string markdown_row(const OptionSpec& option) {
  const char* note = option.support == Support::ignored   ? "Ignored: "
                     : option.support == Support::refused ? "Refused, because "
                                                          : "";
  const bool shows_value = option.support == Support::full && !option.value.empty();
  return fmt::format("| {}{} | {}{} |", code_list(option.names), shows_value ? " " + escaped(option.value) : "", note,
                     escaped(option.help));
}

std::string markdown_table(const CommandSyntax& syntax) {
  std::string text = "| option | meaning |\n|---|---|\n";
  for (const OptionSpec* option : shown_options(syntax)) text += markdown_row(*option) + "\n";
  return text;
}

std::string help_text(const CommandSyntax& syntax) {
  size_t column = 0;
  for (const OptionSpec* option : shown_options(syntax)) column = std::max(column, flags_of(*option).size() + 2);
  const std::string usage = syntax.usage.empty() ? "" : " " + syntax.usage;
  std::string text = fmt::format("usage: {}{}\n{}\n", syntax.command, usage, paragraph(syntax.about));
  for (const OptionSpec* option : shown_options(syntax)) text += option_line(*option, column);
  return text + paragraph(syntax.notes);
}

std::string help_for(const CommandSyntax& syntax, std::string_view topic) {
  if (topic == kMarkdown) return markdown_table(syntax);
  if (topic == kManual) return manual_of(syntax);
  if (topic.empty()) return help_text(syntax);
  throw UsageError("{0} --help {1}: there is no such topic (see: {0} --help)", syntax.command, printable(topic));
}

}  // namespace trireme
