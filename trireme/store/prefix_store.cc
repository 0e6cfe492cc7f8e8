#include "trireme/store/prefix_store.h"

#include "trireme/store/rules.h"

namespace trireme {

PrefixStore::PrefixStore(std::shared_ptr<Store> store, std::string prefix)
    : store_(std::move(store)), prefix_(std::move(prefix)) {}

std::string PrefixStore::inner(const std::string& key) const {
  rules::check_key(key);  // an empty key would pass the inner store's check once the prefix stands before it
  return prefix_ + key;
}

void PrefixStore::set(const std::string& key, std::string_view value) {
  store_->set(inner(key), value);
}

std::string PrefixStore::get(const std::string& key, Deadline deadline) {
  return store_->get(inner(key), deadline);
}

std::optional<std::string> PrefixStore::try_get(const std::string& key) {
  return store_->try_get(inner(key));
}

int64_t PrefixStore::add(const std::string& key, int64_t amount) {
  return store_->add(inner(key), amount);
}

std::string PrefixStore::compare_set(const std::string& key, std::string_view expected, std::string_view desired) {
  return store_->compare_set(inner(key), expected, desired);
}

bool PrefixStore::remove(const std::string& key) {
  return store_->remove(inner(key));
}

std::map<std::string, std::string> PrefixStore::list(const std::string& prefix) {
  std::map<std::string, std::string> result;
  for (auto& [key, value] : store_->list(prefix_ + prefix)) result.emplace(key.substr(prefix_.size()), value);
  return result;
}

}  // namespace trireme
