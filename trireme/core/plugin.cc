#include "trireme/core/plugin.h"

#include <dlfcn.h>
#include <fmt/core.h>
#include <unistd.h>

#include <filesystem>
#include <vector>

#include "trireme/core/env.h"
#include "trireme/core/text.h"

#ifndef TRIREME_PLUGIN_FOLDERS
#define TRIREME_PLUGIN_FOLDERS ""
#endif

namespace trireme {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> folders() {
  if (const auto dir = env::get_nonempty("TRIREME_PLUGIN_DIR")) return {*dir};
  std::vector<std::string> result;
  std::error_code ignored;
  const fs::path program = fs::read_symlink("/proc/self/exe", ignored).parent_path();
  if (!program.empty()) {
    result.push_back((program.parent_path() / "lib").string());
    result.push_back(program.string());
  }
  for (const std::string& folder : split(TRIREME_PLUGIN_FOLDERS, ':'))
    if (!folder.empty()) result.push_back(folder);
  return result;
}

}  // namespace

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
  if (!plugin.handle_)
    plugin.problem_ = path ? fmt::format("cannot load {}: {}", *path, ::dlerror())
                           : fmt::format("there is no {} in {}", file, join(folders(), ", "));
  return plugin;
}

void* Plugin::find(const char* name) const {
  return ::dlsym(handle_, name);
}

}  // namespace trireme
