#include "trireme/store/memory_store.h"

#include "trireme/store/rules.h"

namespace trireme::store {

void MemoryStore::set(const std::string& key, std::string_view value) {
  rules::check_key(key);
  rules::check_value(key, value);
  const std::lock_guard lock(mutex_);
  table_.set(key, value);
  changed_.notify_all();
}

std::string MemoryStore::get(const std::string& key, Deadline deadline) {
  rules::check_key(key);
  const auto since = Clock::now();
  std::unique_lock lock(mutex_);
  for (;;) {
    if (auto value = table_.find(key)) return *std::move(value);
    if (deadline.passed()) throw rules::not_set(key, since);
    if (deadline.is_never())
      changed_.wait(lock);
    else
      changed_.wait_until(lock, deadline.time());
  }
}

std::optional<std::string> MemoryStore::try_get(const std::string& key) {
  rules::check_key(key);
  const std::lock_guard lock(mutex_);
  return table_.find(key);
}

int64_t MemoryStore::add(const std::string& key, int64_t amount) {
  rules::check_key(key);
  const std::lock_guard lock(mutex_);
  const int64_t sum = table_.add(key, amount);
  changed_.notify_all();
  return sum;
}

std::string MemoryStore::compare_set(const std::string& key, std::string_view expected, std::string_view desired) {
  rules::check_key(key);
  rules::check_value(key, expected);
  rules::check_value(key, desired);
  const std::lock_guard lock(mutex_);
  std::string result = table_.compare_set(key, expected, desired);
  changed_.notify_all();
  return result;
}

bool MemoryStore::remove(const std::string& key) {
  rules::check_key(key);
  const std::lock_guard lock(mutex_);
  return table_.remove(key);
}

std::map<std::string, std::string> MemoryStore::list(const std::string& prefix) {
  const std::lock_guard lock(mutex_);
  return table_.list(prefix);
}

}  // namespace trireme::store
