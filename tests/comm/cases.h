// Every public operation once, each in a form that starts it and one that checks what came out.
//
//   const Kind& kind = find_kind("all_reduce");
//   Started started = kind.start({.group = Group::world(), .shape = {2, 3}, .async = true, .seed = 7});
//   started.work.wait();
//   started.check();                     // Mismatch when the result is wrong
//
// Every member calls the same kind with the same case. The sizes of parts, objects and peers follow from the seed.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "trireme/comm/collectives.h"
#include "values.h"

namespace trireme::ranks {

struct Case {
  Group group = {};
  torch::ScalarType type = torch::kFloat;
  ReduceOp op = ReduceOp::sum;
  Layout layout = Layout::contiguous;
  Shape shape = {2, 3, 4, 5};
  bool async = false;
  int root = 0;
  uint64_t seed = 1;

  int rank() const { return group.rank(); }
  int size() const { return group.size(); }
  /// What the rank of the group gives, as dense values. A `part` is what it has for one of the others.
  torch::Tensor values(int rank, int part = 0) const;
  torch::Tensor zeros(const Shape& of) const;
  std::string describe(const std::string& kind) const;
};

struct Started {
  Work work;  ///< finished already in the synchronous form
  std::function<void()> check;
};

struct Kind {
  std::string name;
  bool reduces = false;
  bool moves_tensors = true;  ///< else type, layout and shape of a case make no difference
  Started (*start)(const Case&) = nullptr;
};

const std::vector<Kind>& kinds();
/// UsageError when there is none.
const Kind& find_kind(const std::string& name);

/// Starts, waits and checks.
void run(const Kind& kind, const Case& c);

}  // namespace trireme::ranks
