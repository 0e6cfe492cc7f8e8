// Whether the weights of a model were changed since a moment, at the cost of reading one small tensor.
//
//   const WeightMarks marks(parameters);
//   …
//   if (marks.versions_have_changed(parameters) || marks.value_has_changed(parameters)) …
//
// Operators that write in place change a tensor's version. torch's SGD writes to data(), past the version: a copy of one
// small weight tells of that.
#pragma once

#include <torch/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "trireme/parallel/model_parameters.h"

namespace trireme::parallel {

class WeightMarks {
 public:
  /// Of the parameters with these indices.
  WeightMarks(const std::vector<ModelParameter>& parameters, const std::function<bool(size_t)>& is_meant);

  /// The same parameters. A version is looked at for free.
  bool versions_have_changed(const std::vector<ModelParameter>& parameters) const;
  /// Waits for a GPU, to read the copied weight. Where the ranks keep their weights equal, the answer is the same on all
  /// of them, whatever one rank has written and restored.
  bool value_has_changed(const std::vector<ModelParameter>& parameters) const;

 private:
  std::vector<int64_t> versions_;  // -1: not meant
  std::optional<size_t> probe_;
  torch::Tensor value_;  // of it
};

}  // namespace trireme::parallel
