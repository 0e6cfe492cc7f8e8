#include "trireme/comm/engine/mpi/plugin.h"

#include "trireme/comm/engine/mpi/engine_impl.h"
#include "trireme/comm/engine/mpi/library_impl.h"

namespace {

const trireme::MpiPlugin kPlugin = {
    .version = trireme::kVersion,
    .world = [] { return trireme::mpi::Library::get().world(); },
    .make_engine = trireme::mpi::make_engine,
};

}  // namespace

extern "C" [[gnu::visibility("default")]] const trireme::MpiPlugin* trireme_mpi_plugin() {
  return &kPlugin;
}
