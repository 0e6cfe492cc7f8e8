// Which parameters a backward has given a gradient, found without a hook on any of them.
//
//   const GradientMarks before(parameters);
//   …                                                  // a backward
//   if (before.has_changed(i, parameters[i])) …
//
// Hooks are tied to gradient accumulators, and the graph of a forward leads to those of its time. When a parameter has
// got another one since (Module::to(), set_data()), no hook is called for the gradient that arrives through that graph.
#pragma once

#include <torch/types.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "trireme/parallel/model_parameters.h"

namespace trireme::parallel {

class GradientMarks {
 public:
  explicit GradientMarks(const std::vector<ModelParameter>& parameters) {
    marks_.reserve(parameters.size());
    for (const ModelParameter& parameter : parameters) marks_.push_back(mark_of(parameter.tensor.grad()));
  }

  /// Whether the parameter at this index has a gradient now, and had another one or none when this was made.
  bool has_changed(size_t index, const ModelParameter& parameter) const {
    const torch::Tensor& gradient = parameter.tensor.grad();
    if (!gradient.defined()) return false;
    const Mark& before = marks_.at(index);
    if (gradient.unsafeGetTensorImpl() != before.gradient) return true;
    return before.version != kUnknown && gradient._version() != before.version;
  }

 private:
  static constexpr int64_t kUnknown = -1;

  struct Mark {
    const c10::TensorImpl* gradient = nullptr;
    int64_t version = kUnknown;
  };

  // Gradients that are views of one tensor share their version, so there it says nothing.
  static Mark mark_of(const torch::Tensor& gradient) {
    if (!gradient.defined()) return {};
    const c10::TensorImpl* impl = gradient.unsafeGetTensorImpl();
    return {impl, impl->version_counter().unique() ? gradient._version() : kUnknown};
  }

  std::vector<Mark> marks_;
};

}  // namespace trireme::parallel
