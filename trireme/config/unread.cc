#include "trireme/config/unread.h"

#include "trireme/core/log.h"
#include "trireme/core/text.h"

namespace trireme::config {
namespace {

template <typename Visit>
void walk(const Value& value, const std::string& path, const Visit& visit) {
  for (size_t i = 0; i < value.items.size(); ++i)
    if (value.items[i]->read) walk(*value.items[i], path_join(path, std::to_string(i)), visit);
  for (const auto& [key, entry] : value.entries) {
    const std::string entry_path = path_join(path, key);
    if (entry->read)
      walk(*entry, entry_path, visit);
    else if (value.open)
      visit(*entry, entry_path, closest(key, {value.asked.begin(), value.asked.end()}));
  }
}

}  // namespace

std::vector<UnreadKey> unread_keys(const Node& root) {
  std::vector<UnreadKey> keys;
  walk(*root.value(), root.path(), [&](const Value& value, const std::string& path, const auto& nearest) {
    keys.push_back({value.origin.text(), path, nearest});
  });
  return keys;
}

void warn_unread(const Node& root) {
  walk(*root.value(), root.path(), [](Value& value, const std::string& path, const auto& nearest) {
    if (std::exchange(value.reported, true)) return;
    log_warning("{}: {}: unknown key, ignored{}", value.origin.text(), printable(path),
                nearest ? fmt::format("; did you mean '{}'?", *nearest) : "");
  });
}

}  // namespace trireme::config
