// libFuzzer target for etcd's replies: whatever they are, EtcdStore's calls return or throw an Error. Each line of the
// input is the reply to one request; the gateway below stands in for the one that asks a server.
//
//   cmake -B build-fuzz -DCMAKE_CXX_COMPILER=clang++-16 -DTRIREME_FUZZ=ON -DTRIREME_SANITIZE=address,undefined
//   build-fuzz/bin/etcd_fuzz -max_total_time=30 trireme/store/fuzz/etcd
#include <cstdint>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "trireme/core/error.h"
#include "trireme/core/log.h"
#include "trireme/store/etcd_gateway.h"
#include "trireme/store/etcd_store.h"

namespace {

std::istringstream g_replies;

}  // namespace

namespace trireme::store {

struct EtcdGateway::Client {};

EtcdGateway::EtcdGateway(Endpoint server, Clock::duration patience) : server_(std::move(server)), patience_(patience) {}
EtcdGateway::~EtcdGateway() = default;

nlohmann::json EtcdGateway::post(const std::string& /*path*/, const nlohmann::json& /*body*/, Repeat /*repeat*/,
                                 Deadline /*deadline*/) {
  std::string line;
  if (!std::getline(g_replies, line)) throw PeerError("etcd at {} has ended", to_string(server_));
  nlohmann::json json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) throw PeerError("no reply of etcd's");
  return json;
}

}  // namespace trireme::store

namespace {

using namespace trireme;

template <typename Call>
void ask(const std::string& replies, Call call) {
  g_replies = std::istringstream("{}\n" + replies);  // the first is that to the constructor
  try {
    store::EtcdStore store({.server = {"etcd", 2379}, .prefix = "trireme/"});
    call(store);
  } catch (const Error&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  set_log_level(LogLevel::off);
  const std::string replies(reinterpret_cast<const char*>(data), size);
  ask(replies, [](Store& store) { store.try_get("key"); });
  ask(replies, [](Store& store) { store.list("key"); });
  ask(replies, [](Store& store) { store.add("key", 1); });
  ask(replies, [](Store& store) { store.compare_set("key", "", "value"); });
  ask(replies, [](Store& store) { store.remove("key"); });
  return 0;
}
