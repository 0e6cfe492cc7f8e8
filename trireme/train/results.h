// Named numbers in the order in which they are shown: the loss, then the metrics.
//
//   Results results = model.evaluate(test);
//   results.at("acc");                                              // 0.9125
//   for (const auto& [name, value] : results) …
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace trireme {

class Results {
 public:
  using Item = std::pair<std::string, double>;

  Results() = default;
  Results(std::initializer_list<Item> items);

  /// UsageError that lists what there is.
  double at(std::string_view name) const;
  bool contains(std::string_view name) const;
  /// Replaces the value, or adds it at the end.
  void set(std::string_view name, double value);

  bool empty() const { return items_.empty(); }
  size_t size() const { return items_.size(); }
  auto begin() const { return items_.begin(); }
  auto end() const { return items_.end(); }
  bool operator==(const Results&) const = default;

 private:
  std::vector<Item>::const_iterator find(std::string_view name) const;

  std::vector<Item> items_;
};

}  // namespace trireme
