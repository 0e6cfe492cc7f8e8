// Parts of Trireme that need a library which not every machine has are shared objects, loaded when they are wanted.
//
//   Plugin mpi = Plugin::open("libtrireme_mpi.so");
//   if (!mpi) return mpi.problem();
//   auto* entry = mpi.function<decltype(trireme_mpi_plugin)>("trireme_mpi_plugin");
#pragma once

#include <optional>
#include <string>

namespace trireme {

/// Once loaded, a plugin stays for the life of the process: code of it may be on any stack.
class Plugin {
 public:
  /// Looks in TRIREME_PLUGIN_DIR alone when that is set; else in ../lib and in the program's own folder, seen from the
  /// program, then where Trireme was built or installed, then where the system looks.
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
