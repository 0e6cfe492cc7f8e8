// A model in training as one process has it, whichever way the ranks split it: what the tests of equality compare.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "cases.h"

namespace trireme::test {

struct WholeModel {
  io::TensorMap parameters;  // and buffers
  io::TensorMap gradients;
  io::TensorMap states;  // of the optimizer: "adam/state/fc.weight/exp_avg"
};

/// After a step, before its gradients are cleared. `stepped` names what the optimizer steps, or its wholes. Called by every
/// rank; of a pipeline each gets the tensors of its own layers, and the first of a pipe all but the others' gradients.
WholeModel whole_model(const TrainingState& state, const io::TensorMap& stepped);

/// Of io::optimizer_state(), without the numbers and options of its groups.
io::TensorMap states_of(const io::TensorMap& optimizer);

/// What this rank got is as expected, and rank 0 got all parameters and states. Buffers are not compared.
void require_like(const World& world, const WholeModel& got, const WholeModel& expected, double tolerance,
                  const std::string& what, Where where = Where::current());

/// Whether TRIREME_TEST_LAYOUTS is "all" or not set.
bool all_layouts_wanted();
/// All layouts, or those of the same text as the named ones: what `make test` runs on four ranks of two machines and on
/// eight ranks. Each of them must be among all.
template <typename Layout>
std::vector<Layout> wanted(const std::vector<Layout>& all, const std::vector<Layout>& named) {
  if (all_layouts_wanted()) return all;
  std::vector<Layout> some;
  for (const Layout& name : named) {
    const auto found =
        std::find_if(all.begin(), all.end(), [&](const Layout& layout) { return layout.text() == name.text(); });
    require(found != all.end(), fmt::format("{}: none of the {} layouts of this world", name.text(), all.size()));
    some.push_back(*found);
  }
  return some;
}

}  // namespace trireme::test
