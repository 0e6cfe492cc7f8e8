#include "trireme/config/value.h"

#include <fmt/core.h>

#include <algorithm>

#include "trireme/core/text.h"

namespace trireme::config {
namespace {

constexpr size_t kShown = 60;  // bytes of a text that a message repeats

auto position(const Value& map, std::string_view key) {
  return std::find_if(map.entries.begin(), map.entries.end(), [&](const auto& entry) { return entry.first == key; });
}

}  // namespace

std::string Origin::text() const {
  const std::string& name = source ? *source : std::string("configuration");
  return line > 0 ? fmt::format("{}:{}", name, line) : name;
}

ValuePtr Value::find(std::string_view key) const {
  const auto at = position(*this, key);
  return at == entries.end() ? nullptr : at->second;
}

void Value::set(const std::string& key, ValuePtr value) {
  const auto at = position(*this, key);
  if (at == entries.end())
    entries.emplace_back(key, std::move(value));
  else
    entries[static_cast<size_t>(at - entries.begin())].second = std::move(value);
}

bool Value::erase(std::string_view key) {
  const auto at = position(*this, key);
  if (at == entries.end()) return false;
  entries.erase(at);
  return true;
}

bool is_null_word(std::string_view text) {
  return text.empty() || text == "~" || text == "null" || text == "Null" || text == "NULL" || text == "None";
}

std::string describe(const Value& value) {
  switch (value.kind) {
    case Kind::null:
      return "nothing";
    case Kind::scalar:
      return fmt::format("'{}{}'", printable(value.text.substr(0, kShown)), value.text.size() > kShown ? "…" : "");
    case Kind::list:
      return fmt::format("a list of {}", value.items.size());
    case Kind::map:
      break;
  }
  return "a section";
}

ValuePtr merge(const ValuePtr& under, const ValuePtr& over) {
  if (under->kind != Kind::map || over->kind != Kind::map) return over;
  for (const auto& [key, value] : over->entries) {
    const ValuePtr old = under->find(key);
    under->set(key, old ? merge(old, value) : value);
  }
  under->origin = over->origin;  // the file a user named, not the one it builds upon
  return under;
}

std::string path_join(std::string_view path, std::string_view key) {
  return path.empty() ? std::string(key) : fmt::format("{}.{}", path, key);
}

}  // namespace trireme::config
