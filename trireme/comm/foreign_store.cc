#include "trireme/comm/foreign_store.h"

#include <torch/torch.h>

#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "trireme/core/clock.h"
#include "trireme/core/env.h"
#include "trireme/core/error.h"
#include "trireme/core/net.h"

namespace trireme::comm {
namespace {

const std::string kPrefix = "trireme/";  // the store may be used by others too

class ForeignStore final : public Store {
 public:
  explicit ForeignStore(c10::intrusive_ptr<c10d::TCPStore> store) : store_(std::move(store)) {}

  void set(const std::string& key, std::string_view value) override {
    guarded([&] { store_->c10d::Store::set(kPrefix + key, std::string(value)); });
  }
  std::string get(const std::string& key, Deadline deadline) override {
    return guarded([&] {
      store_->wait({kPrefix + key}, std::max(deadline.left(), Millis(1)));
      return store_->get_to_str(kPrefix + key);
    });
  }
  std::optional<std::string> try_get(const std::string& key) override {
    return guarded([&]() -> std::optional<std::string> {
      if (!store_->check({kPrefix + key})) return std::nullopt;
      return store_->get_to_str(kPrefix + key);
    });
  }
  int64_t add(const std::string& key, int64_t amount) override {
    return guarded([&] { return store_->add(kPrefix + key, amount); });
  }
  std::string compare_set(const std::string& key, std::string_view expected, std::string_view desired) override {
    return guarded(
        [&] { return store_->c10d::Store::compareSet(kPrefix + key, std::string(expected), std::string(desired)); });
  }
  bool remove(const std::string& key) override {
    return guarded([&] { return store_->deleteKey(kPrefix + key); });
  }
  std::map<std::string, std::string> list(const std::string& prefix) override {
    throw UsageError("the keys under {} cannot be listed: torch's TCPStore has no list; use trireme launch", prefix);
  }

 private:
  template <typename F>
  auto guarded(const F& f) -> decltype(f()) {
    try {
      return f();
    } catch (const std::exception& error) {
      const std::string text = error.what();
      throw PeerError("the launcher's store: {}", text.substr(0, text.find('\n')));
    }
  }

  c10::intrusive_ptr<c10d::TCPStore> store_;
};

}  // namespace

std::shared_ptr<Store> connect_foreign_store(const ParallelEnv& env, std::chrono::milliseconds timeout) {
  if (env.world_size == 1 || !env.master) return nullptr;
  const bool hosted = env::get("TORCHELASTIC_USE_AGENT_STORE") == "True";
  c10d::TCPStoreOptions options;
  options.port = env.master->port;
  options.isServer = !hosted && env.rank == 0;
  options.waitWorkers = false;
  options.timeout = timeout;
  try {
    return std::make_shared<ForeignStore>(c10::make_intrusive<c10d::TCPStore>(env.master->host, options));
  } catch (const std::exception& error) {
    const std::string text = error.what();
    throw PeerError("rank {}: no store at {}: {}", env.rank, to_string(*env.master), text.substr(0, text.find('\n')));
  }
}

}  // namespace trireme::comm
