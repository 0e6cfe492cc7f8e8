// In place of etcd_gateway.cc where there was no cpp-httplib.
#include <nlohmann/json.hpp>

#include "trireme/core/error.h"
#include "trireme/store/etcd_gateway.h"

namespace trireme::store {

struct EtcdGateway::Client {};

EtcdGateway::EtcdGateway(Endpoint server, Clock::duration patience) : server_(std::move(server)), patience_(patience) {
  throw UsageError(
      "etcd://{}: this Trireme was built without cpp-httplib and cannot talk to etcd; install it (Debian: "
      "libcpp-httplib-dev) and build again, or let the nodes meet at one of them: --master HOST:PORT",
      to_string(server_));
}

EtcdGateway::~EtcdGateway() = default;

nlohmann::json EtcdGateway::post(const std::string& /*path*/, const nlohmann::json& /*body*/, Repeat /*repeat*/,
                                 Deadline /*deadline*/) {
  return {};  // there is no object to call it on
}

}  // namespace trireme::store
