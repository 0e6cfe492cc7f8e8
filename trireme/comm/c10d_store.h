// The job's store as the c10d::Store that libtorch's backends meet in.
#pragma once

#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "trireme/store/store.h"

namespace trireme::comm {

/// Keys get `prefix` before them. get() and wait() end at the timeout with a PeerError that names the key.
c10::intrusive_ptr<c10d::Store> make_c10d_store(std::shared_ptr<Store> store, std::string prefix,
                                                std::chrono::milliseconds timeout);

}  // namespace trireme::comm
