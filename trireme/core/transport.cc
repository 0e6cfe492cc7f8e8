#include "trireme/core/transport.h"

#include <algorithm>
#include <set>

#include "trireme/core/error.h"

namespace trireme {

const char* to_string(Transport transport) {
  static constexpr const char* kNames[] = {"local", "shm", "gloo", "hierarchical", "mpi"};
  return kNames[static_cast<size_t>(transport)];
}

Transport choose_transport(std::span<const int> host_of, std::string_view wanted) {
  const size_t hosts = std::set<int>(host_of.begin(), host_of.end()).size();
  if (wanted == "gloo") return Transport::gloo;
  if (wanted == "shm" && hosts > 1)
    throw UsageError("backend shm: {} ranks on {} hosts share no memory; use hierarchical, gloo or auto",
                     host_of.size(), hosts);
  if (wanted == "hierarchical") return hosts > 1 ? Transport::hierarchical : Transport::shm;
  if (!wanted.empty() && wanted != "auto" && wanted != "shm")
    throw UsageError(
        "backend {}: there are auto, shm, gloo, hierarchical; mpi comes with mpirun, nccl with CUDA "
        "tensors",
        wanted);
  if (host_of.size() == 1) return Transport::local;
  if (hosts == 1) return Transport::shm;
  return hosts == host_of.size() ? Transport::gloo : Transport::hierarchical;
}

}  // namespace trireme
