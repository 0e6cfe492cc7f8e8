#include "trireme/core/plugin.h"

#include <dlfcn.h>
#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <string_view>
#include <vector>

#include "trireme/core/env.h"
#include "trireme/core/text.h"

#ifndef TRIREME_LIBRARY_FOLDER
#define TRIREME_LIBRARY_FOLDER "../lib"
#endif

namespace trireme {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> folders() {
  if (const auto dir = env::get_nonempty("TRIREME_PLUGIN_DIR")) return {*dir};
  std::vector<std::string> result;
  std::error_code ignored;
  const fs::path program = fs::read_symlink("/proc/self/exe", ignored).parent_path();
  if (program.empty()) return result;
  result.push_back((program.parent_path() / "lib").string());
  const std::string installed = (program / TRIREME_LIBRARY_FOLDER).lexically_normal().string();
  if (installed != result.front()) result.push_back(installed);
  result.push_back(program.string());
  return result;
}

bool is_forbidden(const std::string& path) {
  return ::access(path.c_str(), R_OK) != 0 && errno == EACCES;
}

std::string absence_of(const std::string& file) {
  std::string text = fmt::format("there is no {} in {}", file, join(folders(), ", "));
  for (const std::string& folder : folders())
    if (is_forbidden(fs::path(folder) / file))
      text += fmt::format("; into {} this user may not look, its owner can change that: chmod a+rx {}", folder, folder);
  return text;
}

/// `said` names the library that the system has not found: the plugin, or one that the plugin needs.
std::string problem_of(const std::string& file, const std::optional<std::string>& path, std::string_view said) {
  if (!path) return said.starts_with(file) ? absence_of(file) : fmt::format("cannot load {}: {}", file, said);
  if (is_forbidden(*path))
    return fmt::format("{} is there, but this user may not read it; its owner can change that: chmod a+r {}", *path,
                       *path);
  return fmt::format("cannot load {}: {}", *path, said);
}

}  // namespace

std::vector<std::string> library_folders() {
  void* const program = ::dlopen(nullptr, RTLD_LAZY);
  Dl_serinfo head{};
  if (program == nullptr || ::dlinfo(program, RTLD_DI_SERINFOSIZE, &head) != 0) return {};
  std::vector<std::max_align_t> memory(head.dls_size / sizeof(std::max_align_t) + 1);
  auto* const found = reinterpret_cast<Dl_serinfo*>(memory.data());
  *found = head;
  if (::dlinfo(program, RTLD_DI_SERINFO, found) != 0) return {};
  std::vector<std::string> folders;
  for (unsigned i = 0; i < found->dls_cnt; ++i) folders.emplace_back(found->dls_serpath[i].dls_name);
  return folders;
}

std::optional<std::string> Plugin::locate(const std::string& file) {
  for (const std::string& folder : folders()) {
    const fs::path path = fs::path(folder) / file;
    std::error_code unreadable;
    if (fs::exists(path, unreadable)) return path.string();
  }
  return std::nullopt;
}

Plugin Plugin::open(const std::string& file) {
  Plugin plugin;
  const auto path = locate(file);
  plugin.handle_ = ::dlopen(path.value_or(file).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!plugin.handle_) plugin.problem_ = problem_of(file, path, ::dlerror());
  return plugin;
}

void* Plugin::find(const char* name) const {
  return ::dlsym(handle_, name);
}

}  // namespace trireme
