// Pages for `man`, made from option tables.
//
//   Manual page("trireme serve", "its predictions over HTTP");
//   page.section("OPTIONS");
//   page.option(option);
//   print(page.text());
#pragma once

#include <string>
#include <string_view>

#include "trireme/core/options.h"

namespace trireme {

class Manual {
 public:
  /// The page trireme-serve(1). `summary` is what `apropos` shows: half a line, without a full stop.
  Manual(std::string_view command, std::string_view summary);

  void section(std::string_view title);
  /// Lines as they stand, for usages and examples.
  void lines(std::string_view text);
  void option(const OptionSpec& option);

  /// In the language of man(7).
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

/// The page of a command with one table of options.
std::string manual_of(const CommandSyntax& syntax);

}  // namespace trireme
