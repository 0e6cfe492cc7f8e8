#include "trireme/config/named_node.h"

namespace trireme::config {
namespace {

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

std::vector<NamedNode> read_named_list(const Node& list) {
  std::vector<NamedNode> named;
  for (const Node& item : list.items()) named.push_back(read_named(item));
  return named;
}

}  // namespace trireme::config
