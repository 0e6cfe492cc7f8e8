#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "cli/commands.h"
#include "trireme/core/env.h"
#include "trireme/core/error.h"
#include "trireme/core/text.h"

namespace trireme::cli {
namespace {

// Beside this program first, so that a build folder and an installed copy each find their own.
std::vector<std::filesystem::path> folders() {
  std::error_code ignored;
  std::vector<std::filesystem::path> result{std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path()};
  for (const std::string& folder : split(env::get("PATH").value_or(""), ':')) result.emplace_back(folder);
  return result;
}

}  // namespace

std::optional<std::string> find_external(const std::string& name) {
  for (const auto& folder : folders()) {
    std::string program = (folder / ("trireme-" + name)).string();
    if (::access(program.c_str(), X_OK) == 0) return program;
  }
  return std::nullopt;
}

void run_external(const std::string& name, const Words& words) {
  if (name.empty() || name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-_") != std::string::npos) return;
  const auto program = find_external(name);
  if (!program) return;
  std::vector<char*> arguments{const_cast<char*>(program->c_str())};
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  ::execv(program->c_str(), arguments.data());
  throw SystemError(errno, "cannot start {}", *program);
}

}  // namespace trireme::cli
