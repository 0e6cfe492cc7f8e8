#include "trireme/io/module_state.h"

#include <torch/torch.h>

#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/io/format/safetensors_format.h"

namespace trireme::io {
namespace {

constexpr size_t kShownNames = 10;

bool is_optional(const std::string& name) {
  return name == "num_batches_tracked" || name.ends_with(".num_batches_tracked");
}

std::string kind_text(const torch::Tensor& tensor) {
  return fmt::format("{} {}", c10::toString(tensor.scalar_type()), shape_text(tensor.sizes().vec()));
}

// Floating types are converted into one another; an integer (a counter) must stay one.
bool fits(const torch::Tensor& ours, const torch::Tensor& theirs) {
  return ours.sizes() == theirs.sizes() && ours.is_floating_point() == theirs.is_floating_point();
}

struct Comparison {
  LoadReport report;
  std::vector<std::string> mismatches;  // with both shapes
  std::vector<std::pair<torch::Tensor, torch::Tensor>> pairs;
};

Comparison compare(const TensorMap& ours, const TensorMap& theirs) {
  Comparison result;
  for (const auto& item : ours) {
    const torch::Tensor* found = theirs.find(item.key());
    if (!found) {
      if (!is_optional(item.key())) result.report.missing.push_back(item.key());
    } else if (fits(item.value(), *found)) {
      result.pairs.emplace_back(item.value(), *found);
    } else {
      result.report.skipped.push_back(item.key());
      result.mismatches.push_back(
          fmt::format("{} (here {}, there {})", item.key(), kind_text(item.value()), kind_text(*found)));
    }
  }
  for (const auto& item : theirs)
    if (!ours.contains(item.key()) && !is_optional(item.key())) result.report.unexpected.push_back(item.key());
  return result;
}

void check(const Comparison& found, const LoadOptions& options) {
  std::string what;
  const auto add = [&](const char* title, const std::vector<std::string>& names) {
    if (!names.empty()) what += fmt::format("\n  {} {}: {}", names.size(), title, join_some(names, kShownNames));
  };
  if (options.strict) add("missing there", found.report.missing);
  if (options.strict) add("unknown here", found.report.unexpected);
  if (!options.skip_mismatch) add("of another shape or type", found.mismatches);
  if (what.empty()) return;
  throw UsageError("{} does not fit this model ({} of its tensors do); nothing was loaded:{}\n  {}", options.from,
                   found.pairs.size(), what, options.advice);
}

}  // namespace

TensorMap state_dict(const torch::nn::Module& module) {
  TensorMap tensors = module.named_parameters();
  for (const auto& buffer : module.named_buffers()) tensors.insert(buffer.key(), buffer.value());
  return tensors;
}

LoadReport check_fit(const TensorMap& ours, const TensorMap& theirs, const LoadOptions& options) {
  Comparison found = compare(ours, theirs);
  check(found, options);
  return std::move(found.report);
}

LoadReport load_into(torch::nn::Module& module, const TensorMap& tensors, const LoadOptions& options) {
  Comparison found = compare(state_dict(module), tensors);
  check(found, options);
  const torch::NoGradGuard no_grad;
  for (auto& [ours, theirs] : found.pairs) ours.copy_(theirs);
  return std::move(found.report);
}

}  // namespace trireme::io
