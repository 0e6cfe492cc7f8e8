// In which order the units of a model are used, and so what to gather next.
//
//   order.use(unit);                        // an operator uses it now
//   if (auto next = order.next()) …         // what came after it in the last step
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

namespace trireme::parallel {

class GatherOrder {
 public:
  void use(size_t unit);
  /// Nothing in the first step, at a step's end, and from where a step goes another way than the last one.
  std::optional<size_t> next() const;
  /// The next use is the first of a step.
  void end_of_step();

 private:
  std::vector<size_t> last_;  // uses of the last step, without repetitions in a row
  std::vector<size_t> now_;   // of this one
  bool follows_ = true;       // now_ is a beginning of last_
};

}  // namespace trireme::parallel
