#include "trireme/config/node.h"

#include <cmath>
#include <limits>

#include "trireme/config/number.h"
#include "trireme/core/error.h"
#include "trireme/core/text.h"

namespace trireme::config {
namespace {

std::optional<bool> bool_of(const Value& value) {
  if (value.kind != Kind::scalar || value.quoted) return std::nullopt;
  const std::string word = to_lower(value.text);
  if (word == "true" || word == "yes" || word == "on") return true;
  if (word == "false" || word == "no" || word == "off") return false;
  return std::nullopt;
}

/// A whole number, exact beyond 2^53 when written plainly.
std::optional<int64_t> whole_of(const std::string& text) {
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  const auto number = evaluate(text);
  if (!number || *number != std::trunc(*number) || std::abs(*number) >= 0x1p63) return std::nullopt;
  if (const auto exact = parse_int(text, std::numeric_limits<int64_t>::min(), kMax)) return exact;
  return static_cast<int64_t>(*number);
}

NamedNode read_named(const Node& item) {
  if (item.is_scalar()) return {item.as<std::string>(), {}};
  if (!item.is_map()) item.fail("expected a name with its parameters, got {}", item.shown());
  const auto entries = item.entries();
  if (entries.empty()) item.fail("expected a name with its parameters, got an empty section");
  if (entries.size() > 1)
    item.fail(
        "'{}' and '{}' stand side by side; indent the parameters of a name below it, and begin each name with '- '",
        entries[0].first, entries[1].first);
  const auto& [name, params] = entries[0];
  if (!params.is_map() && !params.is_null()) params.fail("expected parameters, got {}", params.shown());
  return {name, params};
}

}  // namespace

Node::Node() : Node(std::make_shared<Value>(), "") {}

Node::Node(ValuePtr value, std::string path) : value_(std::move(value)), path_(std::move(path)) {}

bool Node::is_bool() const {
  return bool_of(*value_).has_value();
}

Node Node::at(std::string_view key) const {
  if (!is_map() && !is_null()) fail("expected a section with '{}', got {}", key, shown());
  value_->asked.emplace(key);
  value_->open = true;
  ValuePtr child = value_->find(key);
  if (!child) {
    child = std::make_shared<Value>();
    child->origin = value_->origin;  // the section where it could stand
  }
  child->read = true;
  return {child, path_join(path_, key)};
}

Node Node::section(std::string_view key) const {
  Node node = at(key);
  if (!node.is_map() && !node.is_null()) node.fail("expected a section of keys, got {}", node.shown());
  return node;
}

Node Node::need_section(std::string_view key) const {
  required(key);
  return section(key);
}

Node Node::required(std::string_view key) const {
  Node node = at(key);
  if (node.is_null())
    node.fail("{}{}; write it there", is_map() && value_->find(key) ? "empty" : "missing", slip_of(key));
  return node;
}

std::string Node::slip_of(std::string_view key) const {
  std::vector<std::string> unknown;
  for (const auto& [name, entry] : value_->entries)
    if (!value_->asked.contains(name)) unknown.push_back(name);
  const auto nearest = closest(key, unknown);
  if (!nearest) return "";
  return fmt::format("; is '{}' ({}) a slip?", printable(*nearest), value_->find(*nearest)->origin.text());
}

std::vector<Node> Node::items() const {
  if (!is_list() && !is_null()) fail("expected a list, got {}", shown());
  std::vector<Node> nodes;
  for (const ValuePtr& item : value_->items) {
    item->read = true;
    nodes.emplace_back(item, path_join(path_, std::to_string(nodes.size())));
  }
  return nodes;
}

std::vector<std::pair<std::string, Node>> Node::entries() const {
  if (!is_map() && !is_null()) fail("expected a section of keys, got {}", shown());
  std::vector<std::pair<std::string, Node>> nodes;
  for (const auto& [key, entry] : value_->entries) nodes.emplace_back(key, at(key));
  return nodes;
}

std::string Node::remark(std::string_view message) const {
  return fmt::format("{}: {}{}{}", where(), printable(path_), path_.empty() ? "" : ": ", message);
}

void Node::refuse(const std::string& message) const {
  throw UsageError("{}", remark(message));
}

namespace detail {

void read(const Node& node, bool& value) {
  const auto read = bool_of(*node.value());
  if (!read) node.fail("expected True or False, got {}", node.shown());
  value = *read;
}

void read(const Node& node, int64_t& value) {
  const auto read = node.is_scalar() ? whole_of(node.value()->text) : std::nullopt;
  if (!read) node.fail("expected a whole number, got {}", node.shown());
  value = *read;
}

void read(const Node& node, int& value) {
  const int64_t wide = node.as<int64_t>();
  if (wide < std::numeric_limits<int>::min() || wide > std::numeric_limits<int>::max())
    node.fail("{} is out of range", wide);
  value = static_cast<int>(wide);
}

void read(const Node& node, double& value) {
  const auto read = node.is_scalar() ? evaluate(node.value()->text) : std::nullopt;
  if (!read) node.fail("expected a number, got {}", node.shown());
  value = *read;
}

void read(const Node& node, std::string& value) {
  if (!node.is_scalar()) node.fail("expected a text, got {}", node.shown());
  value = node.value()->text;
}

}  // namespace detail

std::vector<NamedNode> read_named_list(const Node& list) {
  std::vector<NamedNode> named;
  for (const Node& item : list.items()) named.push_back(read_named(item));
  return named;
}

}  // namespace trireme::config
