#include "whole_model.h"

#include <cstdlib>

#include "trireme/io/checkpoint_folder.h"
#include "trireme/optim/split_tensors.h"

namespace trireme::test {
namespace {

io::TensorMap copied(const io::TensorMap& tensors) {
  io::TensorMap copies;
  for (const auto& item : tensors) copies.insert(item.key(), item.value().detach().cpu().clone());
  return copies;
}

io::TensorMap whole_gradients(const io::TensorMap& stepped) {
  io::TensorMap all;
  for (const auto& item : stepped) {
    const torch::Tensor piece = optim::piece_of(item.value());
    const auto how = optim::split_of(item.value());
    if (!how && piece.numel() == 0) continue;  // stands for a rank without parameters
    all.insert(item.key(), how ? how->join(piece, piece.grad()) : piece.grad());
  }
  return all;
}

int compare(const io::TensorMap& got, const io::TensorMap& expected, double tolerance, const std::string& what,
            Where where) {
  int compared = 0;
  for (const auto& item : expected) {
    const torch::Tensor* found = got.find(item.key());
    if (!found) continue;
    require_near(*found, item.value(), tolerance, fmt::format("{}: {}", what, item.key()), where);
    ++compared;
  }
  return compared;
}

}  // namespace

io::TensorMap states_of(const io::TensorMap& optimizer) {
  io::TensorMap states;
  for (const auto& item : optimizer)
    if (item.key().find("/state/") != std::string::npos) states.insert(item.key(), item.value());
  return states;
}

WholeModel whole_model(const TrainingState& state, const io::TensorMap& stepped) {
  const torch::NoGradGuard no_grad;
  const io::Snapshot all = detail::take(state);
  return {copied(all.tensors.at("model")), copied(whole_gradients(stepped)),
          copied(states_of(all.tensors.at("optimizer")))};
}

void require_like(const World& world, const WholeModel& got, const WholeModel& expected, double tolerance,
                  const std::string& what, Where where) {
  io::TensorMap trained;
  for (const auto& item : expected.gradients) trained.insert(item.key(), expected.parameters[item.key()]);
  const int parameters = compare(got.parameters, trained, tolerance, what + ": parameters", where);
  const int states = compare(got.states, expected.states, tolerance, what + ": states", where);
  const int gradients = compare(got.gradients, expected.gradients, tolerance, what + ": gradients", where);
  const auto size = [](const io::TensorMap& tensors) { return static_cast<int>(tensors.size()); };
  require(gradients == size(got.gradients), what + ": gradients of unknown parameters", where);
  if (world.rank() != 0) return;
  require(parameters == size(trained) && states == size(expected.states) && states > 0 && gradients > 0,
          fmt::format("{}: {} of {} parameters, {} of {} states, {} gradients", what, parameters, size(trained), states,
                      size(expected.states), gradients),
          where);
}

bool all_layouts_wanted() {
  const char* wanted = std::getenv("TRIREME_TEST_LAYOUTS");
  return !wanted || std::string_view(wanted) == "all";
}

}  // namespace trireme::test
