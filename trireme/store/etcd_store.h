// A store in an etcd cluster (v3, 3.4 or newer), which outlives every launcher.
//
//   EtcdStore store({.server = {"etcd1", 2379}, .prefix = "trireme/job 7/", .lease_ttl = std::chrono::seconds(10)});
//   store.set("node 1", "here");        // gone 10 s after this process is
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>

#include "trireme/core/clock.h"
#include "trireme/core/net.h"
#include "trireme/core/thread_annotations.h"
#include "trireme/store/store.h"

namespace trireme::store {

class EtcdGateway;

/// get() asks again and again, at most every 250 ms. etcd's own limit for a request (1.5 MB unless it was started with
/// --max-request-bytes) is below kMaxValue; a value above it is a UsageError. A short outage, as when etcd restarts, is
/// waited out; where it leaves open whether add or compare_set took place, they throw PeerError.
/// Thread rule: every method may be called from several threads.
class EtcdStore : public Store {
 public:
  struct Options {
    Endpoint server;
    std::string prefix{};  ///< before every key
    /// Keys written through this store vanish that long after the process stopped, and at once when the store is
    /// destroyed. Zero: they stay. Use it for presence; shared counters belong into a store without.
    std::chrono::seconds lease_ttl{0};
    Clock::duration patience = std::chrono::seconds(5);  ///< with an etcd that cannot be reached
  };

  /// Asks etcd for its state, so that a wrong address is a PeerError here and not later. UsageError when Trireme was
  /// built without cpp-httplib.
  explicit EtcdStore(Options options);
  ~EtcdStore() override;

  void set(const std::string& key, std::string_view value) override;
  std::string get(const std::string& key, Deadline deadline) override;
  std::optional<std::string> try_get(const std::string& key) override;
  int64_t add(const std::string& key, int64_t amount) override;
  std::string compare_set(const std::string& key, std::string_view expected, std::string_view desired) override;
  bool remove(const std::string& key) override;
  std::map<std::string, std::string> list(const std::string& prefix) override;
  /// How long the keys stay for sure, whatever happens to etcd and to the way there. Requires a lease.
  Millis lease_left();

 private:
  struct Versioned {
    std::optional<std::string> value{};
    std::string revision = "0";  // of the last change, as etcd writes it
  };

  Versioned read(const std::string& key, Deadline deadline);
  bool write_if_unchanged(const std::string& key, const Versioned& seen, std::string_view value);
  void check_lease();
  void grant_lease();
  void keep_lease_alive();
  bool renew_lease(EtcdGateway& gateway);
  void note_renewal(Clock::time_point sent);

  const Options options_;
  const std::unique_ptr<EtcdGateway> gateway_;
  std::string lease_;  // etcd's number for it; empty without one
  Mutex mutex_;
  std::condition_variable stop_;
  bool stopping_ TRIREME_GUARDED_BY(mutex_) = false;
  bool lease_lost_ TRIREME_GUARDED_BY(mutex_) = false;
  Clock::time_point renewed_ TRIREME_GUARDED_BY(mutex_);  // when the last request that renewed the lease was sent
  std::thread keeper_;
};

}  // namespace trireme::store
