#include "trireme/launch/nodes/job_token.h"

#include <filesystem>

#include "trireme/core/env.h"

namespace trireme::launch {

std::optional<Token> configured_token() {
  if (const auto file = env::get_nonempty("TRIREME_TOKEN_FILE")) return Token::from_file(*file);
  std::filesystem::path folder;
  if (const auto config = env::get_nonempty("XDG_CONFIG_HOME"))
    folder = *config;
  else if (const auto home = env::get_nonempty("HOME"))
    folder = std::filesystem::path(*home) / ".config";
  else
    return std::nullopt;
  const auto file = folder / "trireme" / "token";
  std::error_code ignored;
  if (!std::filesystem::exists(file, ignored)) return std::nullopt;
  return Token::from_file(file);
}

}  // namespace trireme::launch
