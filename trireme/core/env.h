// The only place that reads environment variables. docs/environment.md is made from the table behind it (`trireme help
// environment`).
//
//   if (auto file = env::get("TRIREME_TOKEN_FILE")) …
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace trireme::env {

enum class Use {
  launcher,  // read by `trireme launch`
  program,   // read by a program that uses the library
  worker,    // set by the launcher in every worker
};

struct Variable {
  const char* name;
  Use use;
  const char* meaning;
};

/// Every variable Trireme reads or sets, in the order of the documentation.
const std::vector<Variable>& variables();

/// The value of a variable of the table; nothing when it is unset. An unlisted name is a std::logic_error, so that no
/// variable can be read without being documented.
std::optional<std::string> get(std::string_view name);
/// As get(), with an empty value counted as unset.
std::optional<std::string> get_nonempty(std::string_view name);
/// The whole environment of this process, NAME and value.
std::vector<std::pair<std::string, std::string>> all();
/// Sets or, without a value, removes a variable of this process. Not while other threads read the environment.
void set(const std::string& name, const std::optional<std::string>& value);

}  // namespace trireme::env
