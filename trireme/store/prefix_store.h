// A room of its own inside another store, so that runs, generations and libraries do not meet each other's keys.
//
//   PrefixStore run(store, "run 7/");
//   run.set("plan", "go");          // "run 7/plan" in store
#pragma once

#include <memory>

#include "trireme/store/store.h"

namespace trireme {

/// The prefix counts towards the inner store's key limit. Thread rule: that of the inner store.
class PrefixStore : public Store {
 public:
  PrefixStore(std::shared_ptr<Store> store, std::string prefix);

  void set(const std::string& key, std::string_view value) override;
  std::string get(const std::string& key, Deadline deadline) override;
  std::optional<std::string> try_get(const std::string& key) override;
  int64_t add(const std::string& key, int64_t amount) override;
  std::string compare_set(const std::string& key, std::string_view expected, std::string_view desired) override;
  bool remove(const std::string& key) override;
  /// Keys come without the prefix.
  std::map<std::string, std::string> list(const std::string& prefix) override;

 private:
  std::string inner(const std::string& key) const;

  const std::shared_ptr<Store> store_;
  const std::string prefix_;
};

}  // namespace trireme
