#include "trireme/deploy/export/compare.h"

#include <fmt/ranges.h>
#include <torch/torch.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "trireme/core/error.h"
#include "trireme/core/log.h"

namespace trireme::deploy {
namespace {

using bundle::Activation;

constexpr double kTelling = 100;  // times rounding: a smaller range lets wrong files through

torch::Tensor activated(const torch::Tensor& scores, Activation activation) {
  if (activation == Activation::none) return scores;
  return activation == Activation::softmax ? scores.softmax(1) : scores.sigmoid();
}

/// Over all recordings of one output: how far its numbers lie apart, and the largest of them.
struct Extent {
  double range = 0, largest = 0;
};

/// Of one output in one recording.
struct Difference {
  double found = 0, allowed = 0, range = 0;
};

/// A mask may hold infinities: they must be equal and say nothing of the range.
Extent extent(std::span<const Recording> recordings, size_t output) {
  std::vector<torch::Tensor> all;
  for (const Recording& recording : recordings) {
    const torch::Tensor numbers = recording.outputs.at(output).flatten().to(torch::kDouble);
    all.push_back(numbers.index({numbers.isfinite()}));
  }
  const torch::Tensor numbers = torch::cat(all);
  if (numbers.numel() == 0) return {};
  return {(numbers.max() - numbers.min()).item<double>(), numbers.abs().max().item<double>()};
}

/// No activation makes differences larger; but behind one, scores are numbers up to 1, and rounded as such.
double limit(const Comparison& comparison, const Extent& scores) {
  const bool bare = comparison.activation == Activation::none;
  return comparison.tolerance * (bare ? scores.range : std::min(1.0, scores.range)) +
         comparison.rounding * (bare ? scores.largest : std::max(1.0, scores.largest));
}

Outputs run(const Comparison& comparison, const Scorer& scorer, const torch::Tensor& images) {
  try {
    return scorer(images);
  } catch (const std::exception& error) {
    throw UsageError(
        "{} is not exported: its {} cannot compute {}, though the network can; this is a defect of Trireme, please "
        "report it. Nothing was published. {}",
        comparison.model, comparison.file, shown(images), error.what());
  }
}

std::string shapes_of(const Outputs& outputs) {
  std::vector<std::string> all;
  for (const torch::Tensor& output : outputs) all.push_back(fmt::format("{}", fmt::join(output.sizes(), " x ")));
  return fmt::format("{}", fmt::join(all, ", "));
}

void require_shapes(const Comparison& comparison, const Outputs& found, const Recording& expected) {
  if (shapes_of(found) == shapes_of(expected.outputs)) return;
  throw UsageError("{} is not exported: for {} its {} gives {}, but the network {}; {}. Nothing was published",
                   comparison.model, shown(expected.images), comparison.file, shapes_of(found),
                   shapes_of(expected.outputs), comparison.advice ? comparison.advice() : "");
}

/// Not a number where one of them is not.
double difference(const torch::Tensor& found, const torch::Tensor& expected) {
  if (found.numel() == 0) return 0;
  const torch::Tensor a = found.to(torch::kDouble), b = expected.to(torch::kDouble);
  return torch::where(a == b, torch::zeros_like(a), (a - b).abs()).max().item<double>();
}

}  // namespace

double rounding_of(at::ScalarType type) {
  constexpr double kFloat32 = 5e-6;
  if (type == torch::kBFloat16) return 2 * double{std::numeric_limits<c10::BFloat16>::epsilon()};
  if (type == torch::kHalf) return 2 * double{std::numeric_limits<c10::Half>::epsilon()};
  return kFloat32;
}

void warn_if_alike(std::span<const Recording> recordings, const std::string& model) {
  const Extent scores = extent(recordings, 0);
  if (scores.range <= kTelling * rounding_of(torch::kFloat) * scores.largest)
    log_warning(
        "{} gives all classes and images the same score ({:.2g}, and they range over {:.2g}): comparing the "
        "exported files with it proves little",
        model, scores.largest, scores.range);
}

void compare(const Comparison& comparison, std::span<const Recording> recordings, const Scorer& scorer) {
  std::vector<Extent> extents;
  for (size_t i = 0; i < recordings[0].outputs.size(); ++i) extents.push_back(extent(recordings, i));
  Difference worst;
  for (const Recording& expected : recordings) {
    const Outputs found = run(comparison, scorer, expected.images);
    require_shapes(comparison, found, expected);
    for (size_t i = 0; i < found.size(); ++i) {
      const Difference one{difference(found[i], activated(expected.outputs[i], comparison.activation)),
                           limit(comparison, extents[i]), extents[i].range};
      if (!(one.found <= one.allowed))
        throw UsageError(
            "{} is not exported: on {} with random values its {} differs from the network by {:.2g}, and {:.2g} is "
            "allowed (output {}, activation {}; the network's own scores range over {:.2g}); {}. Nothing was published",
            comparison.model, shown(expected.images), comparison.file, one.found, one.allowed, i,
            to_string(comparison.activation), one.range, comparison.advice ? comparison.advice() : "");
      if (one.found * worst.allowed >= worst.found * one.allowed) worst = one;
    }
  }
  if (comparison.activation == Activation::none)
    log_info(
        "{} differs from the network by {:.1g} before the activation; {:.1g} is allowed (scores range over {:.2g})",
        comparison.file, worst.found, worst.allowed, worst.range);
}

}  // namespace trireme::deploy
