// Calls to etcd v3's HTTP/JSON gateway, with time limits and errors in our words. Internal to EtcdStore. Built without
// cpp-httplib (etcd_gateway_none.cc), the constructor throws.
#pragma once

#include <memory>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "trireme/core/clock.h"
#include "trireme/core/deadline.h"
#include "trireme/core/net.h"
#include "trireme/core/thread_annotations.h"

namespace trireme::store {

/// Thread rule: every method may be called from several threads; calls follow one another.
class EtcdGateway {
 public:
  /// Whether a request may be sent again when it is unknown whether etcd has carried it out.
  enum class Repeat { harmless, harmful };

  EtcdGateway(Endpoint server, Clock::duration patience);
  ~EtcdGateway();

  /// Posts to `path` ("/v3/kv/range") and returns the answer. While etcd cannot be reached (it may be restarting) it
  /// tries again for as long as the patience or the deadline lasts, then throws PeerError. What etcd refuses is a
  /// UsageError.
  nlohmann::json post(const std::string& path, const nlohmann::json& body, Repeat repeat,
                      Deadline deadline = Deadline::never());
  const Endpoint& server() const { return server_; }

 private:
  struct Answer;
  struct Client;  // of cpp-httplib
  Answer post_once(const std::string& path, const std::string& body, Deadline deadline);
  static Answer judged(int status, const std::string& body);
  void limit_time(Deadline deadline) TRIREME_REQUIRES(mutex_);
  nlohmann::json parsed(const std::string& path, const Answer& answer) const;

  const Endpoint server_;
  const Clock::duration patience_;
  Mutex mutex_;
  const std::unique_ptr<Client> client_ TRIREME_PT_GUARDED_BY(mutex_);
};

}  // namespace trireme::store
