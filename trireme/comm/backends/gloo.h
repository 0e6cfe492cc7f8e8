// libtorch's Gloo as an engine: CPU data between hosts.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "trireme/comm/engine/engine.h"
#include "trireme/store/store.h"

namespace trireme::comm {

struct GlooOptions {
  std::string prefix;  ///< of the keys in the store, new for every group
  Member member{};
  std::string address;  ///< of this host, for the others; empty: what the host name resolves to
  std::chrono::milliseconds timeout{};
  std::function<Blame()> blame{};                 ///< finds the ranks that are gone; called after a failure
  std::function<Blame(size_t turn)> find_dead{};  ///< the same for a few, while an operation does not end
};

/// Meets the other ranks and connects to each of them.
std::unique_ptr<Engine> make_gloo_engine(const std::shared_ptr<Store>& store, const GlooOptions& options);

/// Why this build has no Gloo; nothing when it has.
std::optional<std::string> why_no_gloo();

/// The interface or address that Gloo will use, as users may check it: "interface eth1 (GLOO_SOCKET_IFNAME)".
std::string describe_gloo_interface(const std::string& address);

}  // namespace trireme::comm
