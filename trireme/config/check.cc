#include "trireme/config/check.h"

#include <algorithm>
#include <utility>

#include "trireme/core/log.h"
#include "trireme/core/text.h"

namespace trireme::config {
namespace {

template <typename Number, typename Range>
Number within(const Node& node, Number value, Range range) {
  if (value < range.least) node.fail("{} is too small; expected at least {}", value, range.least);
  if (value > range.most) node.fail("{} is too large; expected at most {}", value, range.most);
  return value;
}

}  // namespace

int64_t whole(const Node& section, std::string_view key, int64_t otherwise, WholeRange range) {
  return section.has(key) ? need_whole(section, key, range) : otherwise;
}

int64_t need_whole(const Node& section, std::string_view key, WholeRange range) {
  return within(section.at(key), section.need<int64_t>(key), range);
}

double real(const Node& section, std::string_view key, double otherwise, RealRange range) {
  const Node node = section.at(key);
  return node.is_null() ? otherwise : within(node, node.as<double>(), range);
}

std::string choice(const Node& section, std::string_view key, std::string_view otherwise,
                   const std::vector<std::string>& allowed) {
  const Node node = section.at(key);
  if (node.is_null()) return std::string(otherwise);
  auto value = node.as<std::string>();
  check_choice(node, value, allowed);
  return value;
}

void check_choice(const Node& node, const std::string& value, const std::vector<std::string>& allowed) {
  for (const std::string& name : allowed)
    if (value == name) return;
  const auto nearest = closest(value, allowed);
  node.fail("'{}' is not known; expected {}{}", printable(value), join(allowed, ", "),
            nearest ? fmt::format("; did you mean '{}'?", *nearest) : "");
}

void warn_ignored(const Node& section, std::string_view key, std::string_view why) {
  const Node node = section.at(key);
  if (node.is_null() || std::exchange(node.value()->reported, true)) return;
  log_warning("{}", node.remark(fmt::format("{} is ignored: {}", node.shown(), why)));
}

void warn_unless(bool usual, const Node& section, std::string_view key, std::string_view why) {
  if (section.get(key, usual) != usual) warn_ignored(section, key, why);
}

void warn_of_keys_of_others(const Node& section, const KeyOwners& keys, const std::string& name) {
  for (const auto& [key, owners] : keys)
    if (std::find(owners.begin(), owners.end(), name) == owners.end())
      warn_ignored(section, key, fmt::format("it is a key of {}, not of {}", join(owners, ", "), name));
}

}  // namespace trireme::config
