#include "trireme/store/table.h"

#include "trireme/store/rules.h"

namespace trireme::store {
namespace {

size_t cost(std::string_view key, std::string_view value) {
  return Table::kEntryCost + key.size() + value.size();
}

}  // namespace

std::optional<std::string> Table::find(const std::string& key) const {
  const auto found = entries_.find(key);
  return found == entries_.end() ? std::nullopt : std::optional(found->second);
}

void Table::set(const std::string& key, std::string_view value) {
  const auto found = entries_.find(key);
  const size_t old = found == entries_.end() ? 0 : cost(key, found->second);
  const size_t now = cost(key, value);
  if (now > old && now - old > max_bytes_ - bytes_)
    throw UsageError("[store] no room for \"{}\" ({} bytes): {} of {} bytes are taken; remove keys or raise the limit",
                     rules::shown(key), now, bytes_, max_bytes_);
  if (found == entries_.end())
    entries_.emplace(key, value);
  else
    found->second.assign(value);
  bytes_ = bytes_ - old + now;
}

int64_t Table::add(const std::string& key, int64_t amount) {
  const int64_t result = rules::sum(key, find(key), amount);
  set(key, std::to_string(result));
  return result;
}

std::string Table::compare_set(const std::string& key, std::string_view expected, std::string_view desired) {
  const std::optional<std::string> value = find(key);
  if (!rules::matches(value, expected)) return value.value_or("");
  set(key, desired);
  return std::string(desired);
}

bool Table::remove(const std::string& key) {
  const auto found = entries_.find(key);
  if (found == entries_.end()) return false;
  bytes_ -= cost(key, found->second);
  entries_.erase(found);
  return true;
}

template <typename Visit>
void Table::each_under(const std::string& prefix, Visit visit) const {
  for (auto entry = entries_.lower_bound(prefix); entry != entries_.end() && entry->first.starts_with(prefix); ++entry)
    visit(*entry);
}

std::map<std::string, std::string> Table::list(const std::string& prefix) const {
  std::map<std::string, std::string> result;
  each_under(prefix, [&](const auto& entry) { result.insert(result.end(), entry); });
  return result;
}

size_t Table::bytes_under(const std::string& prefix) const {
  size_t bytes = 0;
  each_under(prefix, [&](const auto& entry) { bytes += cost(entry.first, entry.second); });
  return bytes;
}

}  // namespace trireme::store
