// Parts of Trireme that need a library which not every machine has are shared objects, loaded when they are wanted.
//
//   Plugin mpi = Plugin::open("libtrireme_mpi.so");
//   if (!mpi) return mpi.problem();
//   auto* entry = mpi.function<decltype(trireme_mpi_plugin)>("trireme_mpi_plugin");
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace trireme {

/// Where the system looks for the libraries of this program, in order: its run path first. The CMake targets and
/// pkg-config's files set a run path to the folder of the installation.
std::vector<std::string> library_folders();

/// Once loaded, a plugin stays for the life of the process: code of it may be on any stack.
class Plugin {
 public:
  /// Looks in TRIREME_PLUGIN_DIR alone when that is set; else in ../lib (or lib64 and the like, as installed) and in
  /// the program's own folder, seen from the program; then in library_folders().
  static Plugin open(const std::string& file);
  /// Where it lies in these folders; it is not loaded, and may lie where the system looks even so.
  static std::optional<std::string> locate(const std::string& file);

  explicit operator bool() const { return handle_ != nullptr; }
  /// Why it is absent, and what to do: the places looked in, or what the system said.
  const std::string& problem() const { return problem_; }
  /// Null when there is no such symbol.
  template <typename T>
  T* symbol(const char* name) const {
    return static_cast<T*>(find(name));
  }
  template <typename F>
  F* function(const char* name) const {
    return reinterpret_cast<F*>(find(name));
  }

 private:
  void* find(const char* name) const;

  void* handle_ = nullptr;
  std::string problem_;
};

}  // namespace trireme
