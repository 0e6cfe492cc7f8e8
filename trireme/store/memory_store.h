// A store for the threads of one process: the world of one, and tests with ranks as threads.
//
//   MemoryStore store;
//   std::thread other([&] { store.set("plan", "go"); });
//   store.get("plan", Deadline::in(5s));
#pragma once

#include <condition_variable>
#include <mutex>

#include "trireme/core/thread_annotations.h"
#include "trireme/store/store.h"
#include "trireme/store/table.h"

namespace trireme::store {

/// Thread rule: every method may be called from several threads.
class MemoryStore : public Store {
 public:
  void set(const std::string& key, std::string_view value) override;
  std::string get(const std::string& key, Deadline deadline) override;
  std::optional<std::string> try_get(const std::string& key) override;
  int64_t add(const std::string& key, int64_t amount) override;
  std::string compare_set(const std::string& key, std::string_view expected, std::string_view desired) override;
  bool remove(const std::string& key) override;
  std::map<std::string, std::string> list(const std::string& prefix) override;

 private:
  Mutex mutex_;
  std::condition_variable changed_;
  Table table_ TRIREME_GUARDED_BY(mutex_);
};

}  // namespace trireme::store
