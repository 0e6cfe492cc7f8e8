// What libtrireme_mpi.so offers to trireme/comm/engine/mpi.cc. Both are built together: the version is compared before
// anything else is used, because an Engine is handed over as the C++ object that it is.
#pragma once

#include <memory>

#include "trireme/comm/engine/mpi.h"
#include "trireme/core/version.h"

namespace trireme::comm {

struct MpiPlugin {
  const char* version;  // kVersion, as the plugin was built with
  std::unique_ptr<Engine> (*make_engine)(const MpiOptions& options);
};

inline constexpr const char* kMpiPluginFile = "libtrireme_mpi.so";
inline constexpr const char* kMpiPluginEntry = "trireme_mpi_plugin";

}  // namespace trireme::comm

extern "C" const trireme::comm::MpiPlugin* trireme_mpi_plugin();
