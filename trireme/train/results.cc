#include "trireme/train/results.h"

#include <algorithm>

#include "trireme/core/error.h"
#include "trireme/core/text.h"

namespace trireme {

Results::Results(std::initializer_list<Item> items) {
  for (const auto& [name, value] : items) set(name, value);
}

std::vector<Results::Item>::const_iterator Results::find(std::string_view name) const {
  return std::find_if(items_.begin(), items_.end(), [&](const Item& item) { return item.first == name; });
}

double Results::at(std::string_view name) const {
  if (const auto found = find(name); found != items_.end()) return found->second;
  std::vector<std::string> names;
  for (const Item& item : items_) names.push_back(item.first);
  const auto near = closest(name, names);
  throw UsageError("there is no result '{}'; there are: {}{}", name, names.empty() ? "none" : join(names, ", "),
                   near ? fmt::format(" (did you mean '{}'?)", *near) : "");
}

bool Results::contains(std::string_view name) const {
  return find(name) != items_.end();
}

void Results::set(std::string_view name, double value) {
  if (const auto found = find(name); found != items_.end())
    items_[static_cast<size_t>(found - items_.begin())].second = value;
  else
    items_.emplace_back(name, value);
}

}  // namespace trireme
