// Gradients of backwards under no_sync(), from the backward that gives them to the one that averages them, and whether
// the weights were changed in between. An optimizer that steps with them takes a step of this rank alone.
//
//   local.note(i);                                     // parameter i has got a gradient
//   local.end_of_backward(parameters);
//   …
//   if (local.were_stepped(parameters)) …              // before the next backward
//   local.clear();                                     // they are averaged
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trireme/comm/group.h"
#include "trireme/parallel/gradient_marks.h"
#include "trireme/parallel/model_parameters.h"
#include "trireme/parallel/weight_marks.h"

namespace trireme::parallel {

/// Counts backwards under no_sync() since the last one that averaged, and warns once when a guard seems to live too long.
class LocalStreak {
 public:
  void count(const Group& group);
  void end() { backwards_ = 0; }

 private:
  int backwards_ = 0;
  bool warned_ = false;
};

/// Parameters are known by their index. Thread rule: one backward at a time.
class LocalGradients {
 public:
  /// The model has changed: what was known by index is found again by name.
  void follow(const std::vector<ModelParameter>& parameters);
  void note(size_t index, const ModelParameter& parameter);
  bool has(size_t index) const { return has_[index] != 0; }
  void clear();

  /// After a backward under no_sync().
  void end_of_backward(const std::vector<ModelParameter>& parameters);
  /// Whether parameters with local gradients were written to since the first end_of_backward().
  bool weights_have_changed(const std::vector<ModelParameter>& parameters) const;
  /// Whether their values have changed, and gradients are gone or were cleared: what a loop does after a step. Weights that are exchanged for a
  /// moment, as for an evaluation, leave the gradients there.
  bool were_stepped(const std::vector<ModelParameter>& parameters) const;
  /// They are noted again at the end of the next backward.
  void forget_weights() { weights_.reset(); }

 private:
  bool any_is_gone(const std::vector<ModelParameter>& parameters) const;

  std::vector<uint8_t> has_;
  std::vector<std::string> names_;          // of those that have one
  std::optional<WeightMarks> weights_;      // when the first backward under no_sync ended
  std::optional<GradientMarks> gradients_;  // when the last one ended
};

}  // namespace trireme::parallel
