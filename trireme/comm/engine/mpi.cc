#include "trireme/comm/engine/mpi.h"

#include "trireme/comm/engine/mpi/plugin.h"
#include "trireme/core/error.h"
#include "trireme/core/plugin.h"

namespace trireme::comm {
namespace {

struct Loaded {
  const MpiPlugin* plugin = nullptr;
  std::string reason;  // when there is none
};

Loaded load() {
  const Plugin library = Plugin::open(kMpiPluginFile);
  if (!library) return {nullptr, fmt::format("{}; {}", library.problem(), TRIREME_MPI_ADVICE)};
  const auto entry = library.function<decltype(trireme_mpi_plugin)>(kMpiPluginEntry);
  if (!entry)
    return {nullptr,
            fmt::format("{} is not a plugin of Trireme: it has no function {}", kMpiPluginFile, kMpiPluginEntry)};
  const MpiPlugin* plugin = entry();
  if (std::string_view(plugin->version) != kVersion)
    return {nullptr, fmt::format("{} is of Trireme {}, this program of {}; install both from one build", kMpiPluginFile,
                                 plugin->version, kVersion)};
  return {plugin, ""};
}

const Loaded& loaded() {
  static const Loaded once = load();
  return once;
}

}  // namespace

std::optional<std::string> why_no_mpi() {
  if (loaded().plugin) return std::nullopt;
  return loaded().reason;
}

std::unique_ptr<Engine> make_mpi_engine(const MpiOptions& options) {
  if (!loaded().plugin) throw UsageError("the MPI backend is absent: {}", loaded().reason);
  return loaded().plugin->make_engine(options);
}

}  // namespace trireme::comm
