#include "trireme/launch/machine/program.h"

#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <optional>

#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/launch/machine/executable.h"

namespace trireme::launch {
namespace {

namespace fs = std::filesystem;

template <typename... Args>
[[noreturn]] void not_found(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(exit_code::kNotFound, printable(fmt::format(format, std::forward<Args>(args)...)));
}

bool is_file(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

bool is_there(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

// "; did you mean ./train?" for a misspelt file of the same folder.
std::string nearby_hint(const std::string& name) {
  const fs::path path(name);
  const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error))
    if (names.size() < 1000 && is_file(entry.path())) names.push_back(entry.path().filename());
  const auto nearest = closest(path.filename().string(), names);
  return nearest ? fmt::format("; did you mean {}?", (folder / *nearest).string()) : "";
}

std::string missing_hint(const std::string& name) {
  const bool in_path = name.find('/') == std::string::npos;
  if (in_path && is_file(name)) return fmt::format("; did you mean ./{}?", name);
  if (!in_path && !is_there(fs::path(name).parent_path()))
    return fmt::format("; the folder {} does not exist", fs::path(name).parent_path().string());
  return nearby_hint(name);
}

// As execvp: the first executable file in PATH, else the first file that only lacks the permission.
std::optional<std::string> find_in_path(const std::string& name, const std::string& path_variable) {
  std::optional<std::string> forbidden;
  for (const std::string& folder : split(path_variable, ':')) {
    const std::string candidate = folder.empty() ? "./" + name : folder + "/" + name;
    if (!is_file(candidate)) continue;
    if (::access(candidate.c_str(), X_OK) == 0) return candidate;
    if (!forbidden) forbidden = candidate;
  }
  return forbidden;
}

std::string locate(const std::string& name, const std::string& path_variable) {
  if (name.find('/') != std::string::npos) {
    if (!is_there(name)) not_found("{}: no such file{}", name, missing_hint(name));
    return name;
  }
  const auto found = find_in_path(name, path_variable);
  if (!found) not_found("{}: not found in PATH{}", name, missing_hint(name));
  return *found;
}

void check_script(const std::string& script) {
  if (!is_there(script)) not_found("{}: no such file{}", script, nearby_hint(script));
  if (!is_file(script))
    throw Error(exit_code::kNotExecutable, printable(fmt::format("{}: not a file but a folder", script)));
  if (::access(script.c_str(), R_OK) != 0)
    throw Error(exit_code::kNotExecutable,
                fmt::format("{}: this user may not read it; try: chmod +r {}", script, script));
}

std::vector<std::string> python_command(const std::vector<std::string>& command, const std::string& path_variable) {
  check_script(command.front());
  const auto own = python_beside(::program_invocation_name);
  if (!own && !find_in_path("python3", path_variable))
    not_found("{} needs python3, which is not in PATH; install it, or give --no-python to execute the file itself",
              command.front());
  std::vector<std::string> full{own.value_or("python3"), "-u"};
  full.insert(full.end(), command.begin(), command.end());
  return full;
}

}  // namespace

std::optional<std::string> python_beside(const std::string& program) {
  if (program.find('/') == std::string::npos) return std::nullopt;  // found in PATH, where python3 is looked for too
  const fs::path folder = fs::path(program).parent_path();
  if (!is_file(folder / ".." / "pyvenv.cfg") || !is_file(folder / "python3")) return std::nullopt;
  return fs::absolute(folder / "python3").string();
}

std::vector<std::string> resolve_program(const std::vector<std::string>& command, const std::string& path_variable,
                                         bool no_python) {
  if (command.empty() || command.front().empty()) not_found("no PROGRAM to start: its name is empty");
  if (!no_python && command.front().ends_with(".py")) return python_command(command, path_variable);
  std::vector<std::string> full = command;
  full.front() = locate(command.front(), path_variable);
  check_executable(full.front(),
                   [&](const std::string& name) { return find_in_path(name, path_variable).has_value(); });
  return full;
}

}  // namespace trireme::launch
