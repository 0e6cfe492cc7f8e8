#include "trireme/core/options.h"

#include <algorithm>

#include "trireme/core/error.h"
#include "trireme/core/text.h"

namespace trireme {
namespace {

using Words = std::vector<std::string>;

std::string with_underscores(std::string_view name) {
  const size_t dashes = std::min(name.find_first_not_of('-'), name.size());
  std::string spelled(name);
  std::replace(spelled.begin() + static_cast<std::ptrdiff_t>(dashes), spelled.end(), '-', '_');
  return spelled;
}

const Option* find(const CommandSyntax& syntax, std::string_view name) {
  for (const Option& option : syntax.options)
    if (option.has_name(name)) return &option;
  return nullptr;
}

bool is_help(std::string_view name) {
  return name == "--help" || name == "-h";
}

// --- spelling hints

/// A name of the table with the hyphens or underscores that the user typed.
std::string like(std::string name, std::string_view typed) {
  const bool hyphens = typed.find('-', 2) != std::string_view::npos, underscores = typed.find('_') != typed.npos;
  if (hyphens != underscores) std::replace(name.begin() + 2, name.end(), hyphens ? '_' : '-', hyphens ? '-' : '_');
  return name;
}

Words long_names(const CommandSyntax& syntax) {
  Words names{"--help"};
  for (const Option& option : syntax.options)
    for (const std::string& name : option.names)
      if (option.support != Support::refused && name.starts_with("--")) names.push_back(name);
  return names;
}

/// "-n4" and "-np4": a short option with its number attached.
std::optional<std::string> attached_number(const CommandSyntax& syntax, const std::string& typed) {
  const size_t digits = typed.find_first_of("0123456789");
  if (digits == std::string::npos || typed.starts_with("--") || !find(syntax, typed.substr(0, digits)))
    return std::nullopt;
  return typed.substr(0, digits) + " " + typed.substr(digits);
}

/// One dash too few or too many: -gpus, --np.
std::optional<std::string> wrong_dashes(const CommandSyntax& syntax, const std::string& typed) {
  for (const std::string& fixed : {"-" + typed, typed.substr(1)})
    if (is_help(fixed) || (fixed.starts_with('-') && find(syntax, fixed))) return fixed;
  return std::nullopt;
}

std::optional<std::string> nearest_name(const CommandSyntax& syntax, const std::string& typed) {
  const std::string word = with_underscores(typed.starts_with("--") ? typed : "-" + typed);
  const Words names = long_names(syntax);
  Words spelled;
  for (const std::string& name : names) spelled.push_back(with_underscores(name));
  const auto nearest = closest(word, spelled);
  for (size_t i = 0; i < names.size(); ++i)
    if (nearest ? spelled[i] == *nearest : word.size() > 4 && spelled[i].starts_with(word))
      return like(names[i], typed);
  return std::nullopt;
}

std::optional<std::string> likely_meant(const CommandSyntax& syntax, const std::string& typed) {
  if (auto fixed = attached_number(syntax, typed)) return fixed;
  if (auto fixed = wrong_dashes(syntax, typed)) return fixed;
  return typed.size() > 2 ? nearest_name(syntax, typed) : std::nullopt;
}

[[noreturn]] void throw_unknown(const CommandSyntax& syntax, const std::string& typed) {
  const auto meant = likely_meant(syntax, typed);
  throw UsageError("unknown option {}{} (see: {} --help)", printable(typed),
                   meant ? fmt::format("; did you mean {}?", *meant) : "", syntax.command);
}

// --- the words

bool is_option(std::string_view word) {
  return word.size() > 1 && word.front() == '-' && word != "--";
}

std::string name_in(const std::string& word) {
  return word.substr(0, word.find('='));
}

/// Reads the words from the first to the last, or to --help.
class Parser {
 public:
  Parser(const CommandSyntax& syntax, const Words& words) : syntax_(syntax), words_(words) {}

  CommandLine parse() {
    while (at_ < words_.size() && !line_.help) {
      if (is_option(words_[at_]))
        read_option();
      else
        read_operand();
    }
    return std::move(line_);
  }

 private:
  void read_option() {
    const std::string& word = words_[at_++];
    const std::string name = name_in(word);
    const size_t equals = word.find('=');
    if (is_help(name)) {
      line_.help = equals == std::string::npos ? help_topic() : word.substr(equals + 1);
      return;
    }
    const Option* option = find(syntax_, name);
    if (!option) throw_unknown(syntax_, name);
    option->apply({name, equals == std::string::npos ? following_text(*option, name) : word.substr(equals + 1)});
    if (option->takes == Takes::assignments)
      while (at_ < words_.size() && is_assignment(words_[at_])) option->apply({name, words_[at_++]});
  }

  void read_operand() {
    const bool dashes = words_[at_] == "--";
    if (dashes) ++at_;
    const bool all = dashes || syntax_.operands == Operands::program;
    for (const size_t end = all ? words_.size() : at_ + 1; at_ < end; ++at_) add_operand(words_[at_]);
  }

  void add_operand(const std::string& word) {
    if (syntax_.operands == Operands::refused)
      throw UsageError("'{}' belongs to no option{} (see: {} --help)", printable(word),
                       syntax_.operand_advice.empty() ? "" : "; " + syntax_.operand_advice, syntax_.command);
    line_.operands.push_back(word);
  }

  /// The value of an option without "=", from the words behind it.
  std::string following_text(const Option& option, const std::string& name) {
    if (option.takes == Takes::nothing) return "true";
    if (option.takes == Takes::boolean) return bool_follows() ? words_[at_++] : "true";
    require_value(option, name);
    return words_[at_++];
  }

  /// A word of another option's kind in the place of a value is a forgotten value; -1 is a value.
  void require_value(const Option& option, const std::string& name) const {
    const bool any = at_ < words_.size();
    if (any && !words_[at_].starts_with("--") && !find(syntax_, name_in(words_[at_]))) return;
    const std::string next = any && words_[at_] != "--" ? printable(name_in(words_[at_])) : "";
    throw UsageError("{0} needs a value: {0} {1}{2}", name, option.value,
                     next.empty() ? "" : fmt::format(" ({1} is an option; {0}={1} takes it as the value)", name, next));
  }

  /// Only true and false, where another word may be an operand. The last word is PROGRAM, even when it is `true`.
  bool bool_follows() const {
    const size_t last = syntax_.operands == Operands::program ? at_ + 1 : at_;
    if (last >= words_.size() || words_[at_].starts_with('-')) return false;
    return syntax_.operands == Operands::refused || is_bool_word(words_[at_]);
  }

  static bool is_assignment(const std::string& word) {
    return !word.starts_with('-') && word.find('=') != std::string::npos;
  }

  std::string help_topic() const {
    const bool topic =
        at_ < words_.size() && (!is_option(words_[at_]) || words_[at_] == kMarkdown || words_[at_] == kManual);
    return topic && words_[at_] != "--" ? words_[at_] : "";
  }

  const CommandSyntax& syntax_;
  const Words& words_;
  size_t at_ = 0;
  CommandLine line_;
};

}  // namespace

bool OptionSpec::has_name(std::string_view name) const {
  const std::string spelled = with_underscores(name);
  return std::any_of(names.begin(), names.end(),
                     [&](const std::string& own) { return with_underscores(own) == spelled; });
}

Option::Option(std::vector<std::string> own_names, std::string own_value, std::string own_help,
               std::function<void(const Given&)> what, Takes how)
    : OptionSpec{std::move(own_names), std::move(own_value), std::move(own_help), how}, apply(std::move(what)) {
  if (value.empty() && how == Takes::value) takes = Takes::nothing;
}

CommandLine parse_command_line(const CommandSyntax& syntax, const Words& words) {
  return Parser(syntax, words).parse();
}

}  // namespace trireme
