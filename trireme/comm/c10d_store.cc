#include "trireme/comm/c10d_store.h"

#include <torch/torch.h>

#include <string_view>

#include "trireme/core/deadline.h"

namespace trireme::comm {
namespace {

using Bytes = std::vector<uint8_t>;

std::string_view text(const Bytes& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

Bytes bytes(const std::string& text) {
  return {text.begin(), text.end()};
}

class C10dStore final : public c10d::Store {
 public:
  C10dStore(std::shared_ptr<trireme::Store> store, std::string prefix, std::chrono::milliseconds timeout)
      : c10d::Store(timeout), store_(std::move(store)), prefix_(std::move(prefix)) {}

  c10::intrusive_ptr<c10d::Store> clone() override { return c10::make_intrusive<C10dStore>(store_, prefix_, timeout_); }
  void set(const std::string& key, const Bytes& value) override { store_->set(prefix_ + key, text(value)); }
  Bytes compareSet(const std::string& key, const Bytes& expected, const Bytes& desired) override {
    return bytes(store_->compare_set(prefix_ + key, text(expected), text(desired)));
  }
  Bytes get(const std::string& key) override { return bytes(store_->get(prefix_ + key, Deadline::in(timeout_))); }
  int64_t add(const std::string& key, int64_t value) override { return store_->add(prefix_ + key, value); }
  bool deleteKey(const std::string& key) override { return store_->remove(prefix_ + key); }
  bool check(const std::vector<std::string>& keys) override {
    for (const std::string& key : keys)
      if (!store_->try_get(prefix_ + key)) return false;
    return true;
  }
  int64_t getNumKeys() override { return static_cast<int64_t>(store_->list(prefix_).size()); }
  void wait(const std::vector<std::string>& keys) override { wait(keys, timeout_); }
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) override {
    const Deadline deadline = Deadline::in(timeout);
    for (const std::string& key : keys) store_->get(prefix_ + key, deadline);
  }

 private:
  const std::shared_ptr<trireme::Store> store_;
  const std::string prefix_;
};

}  // namespace

c10::intrusive_ptr<c10d::Store> make_c10d_store(std::shared_ptr<Store> store, std::string prefix,
                                                std::chrono::milliseconds timeout) {
  return c10::make_intrusive<C10dStore>(std::move(store), std::move(prefix), timeout);
}

}  // namespace trireme::comm
