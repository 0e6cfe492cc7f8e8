#include "trireme/core/manual.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>

#include "trireme/core/option_help.h"
#include "trireme/core/text.h"
#include "trireme/core/version.h"

namespace trireme {
namespace {

/// groff's names of the characters that it would replace: a hyphen by a dash, a quote by a curved one.
std::string_view literal(const char& c) {
  switch (c) {
    case '\\':
      return "\\e";
    case '-':
      return "\\-";
    case '\'':
      return "\\(aq";
    case '`':
      return "\\(ga";
    case '~':
      return "\\(ti";
    case '^':
      return "\\(ha";
    default:
      return {&c, 1};
  }
}

/// Text that man shows as it is.
std::string literal(std::string_view text) {
  std::string out;
  for (const char& c : text) out += literal(c);
  return out;
}

/// A line that begins with a dot is a request; \& before it makes it text.
std::string literal_line(std::string_view line) {
  return (line.starts_with('.') ? "\\&" : "") + literal(line) + "\n";
}

std::string page_name(std::string_view command) {
  std::string name(command);
  std::replace(name.begin(), name.end(), ' ', '-');
  return name;
}

/// "Writes one HTML file. It …" -> "Writes one HTML file"
std::string first_sentence(std::string about) {
  std::replace(about.begin(), about.end(), '\n', ' ');
  return std::string(trim(about.substr(0, about.find(". "))));
}

}  // namespace

Manual::Manual(std::string_view command, std::string_view summary) {
  const std::string name = page_name(command);
  std::string title = name;
  std::transform(title.begin(), title.end(), title.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  text_ = fmt::format(".TH \"{}\" 1 \"\" \"Trireme {}\"\n.nh\n", title, kVersion);
  section("NAME");
  text_ += fmt::format("{} \\- {}\n", literal(name), literal(summary));
}

void Manual::section(std::string_view title) {
  text_ += fmt::format(".SH \"{}\"\n", title);
}

void Manual::lines(std::string_view text) {
  text_ += ".nf\n";
  for (const std::string& line : split(text.substr(0, text.find_last_not_of('\n') + 1), '\n'))
    text_ += literal_line(line);
  text_ += ".fi\n";
}

void Manual::option(const OptionSpec& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.names) names.push_back("\\fB" + literal(name) + "\\fR");
  const std::string value = option.value.empty() ? "" : " \\fI" + literal(option.value) + "\\fR";
  text_ += fmt::format(".TP\n{}{}\n{}", join(names, ", "), value, literal_line(option.help));
}

std::string manual_of(const CommandSyntax& syntax) {
  std::string summary = first_sentence(syntax.about);
  if (summary.ends_with('.')) summary.pop_back();
  Manual page(syntax.command, summary);
  page.section("SYNOPSIS");
  page.lines(syntax.command + (syntax.usage.empty() ? "" : " " + syntax.usage));
  page.section("DESCRIPTION");
  page.lines(syntax.about);
  page.section("OPTIONS");
  for (const OptionSpec* option : shown_options(syntax)) page.option(*option);
  if (syntax.notes.empty()) return page.text();
  page.section("NOTES");
  page.lines(syntax.notes);
  return page.text();
}

}  // namespace trireme
