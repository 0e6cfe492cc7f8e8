// A small shared memory between the processes of a job: keys, values, and waiting for them.
//
//   auto store = TcpStore::connect({.server = address, .token = token, .name = "rank 3"}, Deadline::in(10s));
//   store->set("ready/3", "1");
//   std::string plan = store->get("plan", Deadline::in(30s));    // waits until someone has set it
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "trireme/core/deadline.h"

namespace trireme {

/// Contract of every store. Keys are 1 to kMaxKey bytes, values up to kMaxValue bytes, both of any content; a longer
/// one is a UsageError. A lost server is a PeerError. All methods may be called from several threads.
class Store {
 public:
  static constexpr size_t kMaxKey = 1024;
  static constexpr size_t kMaxValue = 16u << 20;

  virtual ~Store() = default;
  virtual void set(const std::string& key, std::string_view value) = 0;
  /// Waits for the key; PeerError naming the key and the time waited when the deadline passes first.
  virtual std::string get(const std::string& key, Deadline deadline) = 0;
  virtual std::optional<std::string> try_get(const std::string& key) = 0;
  /// Adds to a decimal number (absent = 0) and returns the sum, atomically. UsageError when the value is not a number.
  virtual int64_t add(const std::string& key, int64_t amount) = 0;
  /// Sets `desired` when the value equals `expected`, or when the key is absent and `expected` is empty. Returns what
  /// the key holds afterwards (empty when it is still absent), so `result == desired` tells success.
  virtual std::string compare_set(const std::string& key, std::string_view expected, std::string_view desired) = 0;
  virtual bool remove(const std::string& key) = 0;
  /// Every key that starts with `prefix`, with its value.
  virtual std::map<std::string, std::string> list(const std::string& prefix) = 0;
};

}  // namespace trireme
