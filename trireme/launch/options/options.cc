#include "trireme/launch/options/options.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include "trireme/core/error.h"
#include "trireme/core/log.h"
#include "trireme/core/text.h"
#include "trireme/launch/options/option_check.h"
#include "trireme/launch/options/option_table.h"

namespace trireme::launch {
namespace {

using Args = std::vector<std::string>;

// --- spelling hints

std::string like(std::string name, std::string_view typed) {
  const bool hyphens = typed.find('-', 2) != std::string_view::npos && typed.find('_') == std::string_view::npos;
  if (hyphens) std::replace(name.begin() + 2, name.end(), '_', '-');
  return name;
}

std::vector<std::string> long_names() {
  std::vector<std::string> names;
  for (const Option& option : option_table())
    for (const std::string& name : option.names)
      if (option.support != Support::refused && name.starts_with("--")) names.push_back(name);
  return names;
}

// "-n4" and "-np4": a short option with its number attached.
std::optional<std::string> attached_number(const std::string& typed) {
  const size_t digits = typed.find_first_of("0123456789");
  if (digits == std::string::npos || typed.starts_with("--") || !find_option(typed.substr(0, digits)))
    return std::nullopt;
  return typed.substr(0, digits) + " " + typed.substr(digits);
}

// One dash too few or too many: -gpus, --np.
std::optional<std::string> wrong_dashes(const std::string& typed) {
  for (const std::string& fixed : {"-" + typed, typed.substr(1)})
    if (fixed.starts_with('-') && find_option(fixed)) return fixed;
  return std::nullopt;
}

std::optional<std::string> likely_meant(const std::string& typed) {
  if (auto fixed = attached_number(typed)) return fixed;
  if (auto fixed = wrong_dashes(typed)) return fixed;
  if (typed.size() <= 2) return std::nullopt;
  std::string word = typed.starts_with("--") ? typed : "-" + typed;
  std::replace(word.begin() + 2, word.end(), '-', '_');
  const auto names = long_names();
  if (const auto nearest = closest(word, names)) return like(*nearest, typed);
  for (const std::string& name : names)
    if (word.size() > 4 && name.starts_with(word)) return like(name, typed);
  return std::nullopt;
}

[[noreturn]] void throw_unknown(const std::string& typed) {
  const auto meant = likely_meant(typed);
  throw UsageError("unknown option {}{} (see: trireme launch --help)", printable(typed),
                   meant ? fmt::format("; did you mean {}?", *meant) : "");
}

// --- the command line

bool is_option(std::string_view word) {
  return word.size() > 1 && word.front() == '-' && word != "--";
}

// An option in the place of a value is a forgotten value; -1 is a value.
void require_value(const Args& args, size_t at, const Option& option, const std::string& source) {
  const bool missing = at >= args.size() || args[at] == "--" || find_option(args[at].substr(0, args[at].find('=')));
  if (missing) throw UsageError("{} needs a value: {} {}", source, source, option.value);
}

// The text for an option without "=": taken from the words that follow. Moves `next` behind them.
std::string following_text(const Args& args, size_t& next, const Option& option, const std::string& source) {
  switch (option.takes) {
    case Takes::value:
      require_value(args, next, option, source);
      return args[next++];
    case Takes::boolean:  // the last word is PROGRAM, even when it is called `true`
      return next + 1 < args.size() && is_bool_word(args[next]) ? args[next++] : "true";
    case Takes::optional_word:
      return next < args.size() && !is_option(args[next]) ? args[next++] : "";
    case Takes::nothing:
      break;
  }
  return "true";
}

// Reads the option at `at`; returns the place behind it.
size_t read_option(const Args& args, size_t at, Draft& draft) {
  const size_t equals = args[at].find('=');
  const std::string name = args[at].substr(0, equals);
  const Option* option = find_option(name);
  if (!option) throw_unknown(name);
  size_t next = at + 1;
  const Given given{
      name, equals == std::string::npos ? following_text(args, next, *option, name) : args[at].substr(equals + 1)};
  option->apply(draft, given);
  draft.given[option->names.front()] = given;
  return next;
}

void read_command_line(const Args& args, Draft& draft) {
  size_t next = 0;
  while (next < args.size() && is_option(args[next]) && !draft.request.help_topic)
    next = read_option(args, next, draft);
  if (next < args.size() && args[next] == "--") ++next;
  draft.request.command.assign(args.begin() + static_cast<std::ptrdiff_t>(next), args.end());
}

// --- variables

std::string lookup(const Environment& variables, std::string_view name) {
  for (const auto& [key, value] : variables)
    if (key == name) return value;
  return "";
}

// The option of the command line that makes a variable about the cluster meaningless.
std::optional<std::string> overruled_by(const Option& option, const Draft& draft) {
  if (draft.standalone && option.role != Role::other) return "--standalone";
  if (option.role != Role::meeting_place) return std::nullopt;
  for (const Option& other : option_table())
    if (other.role == Role::meeting_place && draft.has(other.names[0]) &&
        draft.given.at(other.names[0]).source.starts_with('-'))
      return draft.shown(other.names[0]);
  return std::nullopt;
}

void use_variable(const Option& option, const Given& variable, Draft& draft) {
  const std::string& name = option.names.front();
  std::optional<std::string> winner = overruled_by(option, draft);
  if (draft.has(name)) {
    if (draft.given.at(name).text == variable.text) return;
    winner = draft.shown(name);
  }
  if (winner) {
    draft.notices.emplace_back(LogLevel::warning,
                               fmt::format("[launch] {} is ignored: {} wins", variable.shown(), *winner));
    return;
  }
  option.apply(draft, variable);
  draft.given[name] = variable;
  draft.notices.emplace_back(LogLevel::info, fmt::format("[launch] {} is used as {}", variable.shown(), name));
}

void read_variables(const Environment& variables, Draft& draft) {
  if (!lookup(variables, "TRIREME_JOB_ID").empty()) return;
  for (const Option& option : option_table())
    for (const std::string& name : option.variables)
      if (const std::string value = lookup(variables, name); !value.empty())
        use_variable(option, Given{name, value}, draft);
}

}  // namespace

Request parse_launch(const std::vector<std::string>& args, const Environment& variables) {
  Draft draft;
  read_command_line(args, draft);
  if (draft.request.help_topic) return std::move(draft.request);
  read_variables(variables, draft);
  settle(draft);
  for (const auto& [level, text] : draft.notices)
    if (level >= draft.request.log_level) log(level, text);
  return std::move(draft.request);
}

}  // namespace trireme::launch
