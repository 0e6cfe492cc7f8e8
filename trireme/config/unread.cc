#include "trireme/config/unread.h"

#include "trireme/core/log.h"
#include "trireme/core/text.h"

namespace trireme::config {
namespace {

void warn(Value& value, const std::string& path, const std::optional<std::string>& nearest) {
  if (std::exchange(value.reported, true)) return;
  log_warning("{}: {}: unknown key, ignored{}", value.origin.text(), printable(path),
              nearest ? fmt::format("; did you mean '{}'?", *nearest) : "");
}

void walk(const Value& value, const std::string& path) {
  for (size_t i = 0; i < value.items.size(); ++i)
    if (value.items[i]->read) walk(*value.items[i], path_join(path, std::to_string(i)));
  for (const auto& [key, entry] : value.entries) {
    const std::string entry_path = path_join(path, key);
    if (entry->read)
      walk(*entry, entry_path);
    else if (value.open)
      warn(*entry, entry_path, closest(key, {value.asked.begin(), value.asked.end()}));
  }
}

}  // namespace

void warn_unread(const Node& root) {
  walk(*root.value(), root.path());
}

}  // namespace trireme::config
