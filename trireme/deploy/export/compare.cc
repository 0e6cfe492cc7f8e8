#include "trireme/deploy/export/compare.h"

#include <ATen/CPUGeneratorImpl.h>
#include <fmt/ranges.h>
#include <torch/torch.h>

#include <algorithm>
#include <optional>

#include "trireme/core/error.h"
#include "trireme/core/log.h"

namespace trireme::deploy {
namespace {

using bundle::Activation;

constexpr double kRounding = 5e-6;  // of float32, over all the layers
constexpr double kTelling = 100;    // times rounding: a smaller range lets wrong files through

constexpr const char* kFixedCount =
    ", though another number of them: forward() has the number of images of one call in it; use flatten(1) instead of "
    "view, and avoid loops over images";

/// While it lives, GPUs multiply in full float32.
class FullPrecision {
 public:
  FullPrecision()
      : convolutions_(at::globalContext().allowTF32CuDNN()), products_(at::globalContext().allowTF32CuBLAS()) {
    set(false, false);
  }
  ~FullPrecision() { set(convolutions_, products_); }
  FullPrecision(const FullPrecision&) = delete;
  FullPrecision& operator=(const FullPrecision&) = delete;

 private:
  static void set(bool convolutions, bool products) {
    at::globalContext().setAllowTF32CuDNN(convolutions);
    at::globalContext().setAllowTF32CuBLAS(products);
  }
  bool convolutions_, products_;
};

torch::Tensor original_scores(const Network& net, const torch::Tensor& images, const std::string& model) {
  const torch::Device device = device_of(*net.module);
  std::optional<FullPrecision> full;
  if (device.is_cuda()) full.emplace();
  try {
    return net.forward(images.to(device)).to(torch::kCPU);
  } catch (const c10::Error& error) {
    throw UsageError("{} works on {} images but not on {}: {}", model, kTracedBatch, images.size(0),
                     error.what_without_backtrace());
  }
}

torch::Tensor activated(const torch::Tensor& scores, Activation activation) {
  if (activation == Activation::none) return scores;
  return activation == Activation::softmax ? scores.softmax(1) : scores.sigmoid();
}

/// Over all samples: how far the scores lie apart, and the largest of them.
struct Extent {
  double range, largest;
};

Extent extent(const std::vector<Sample>& samples) {
  std::vector<torch::Tensor> all;
  for (const Sample& sample : samples) all.push_back(sample.scores.flatten());
  const torch::Tensor scores = torch::cat(all).to(torch::kDouble);
  return {(scores.max() - scores.min()).item<double>(), scores.abs().max().item<double>()};
}

/// No activation makes differences larger; but behind one, scores are numbers up to 1, and rounded as such.
double limit(const Comparison& comparison, const Extent& scores) {
  const bool bare = comparison.activation == Activation::none;
  return comparison.tolerance * (bare ? scores.range : std::min(1.0, scores.range)) +
         kRounding * (bare ? scores.largest : std::max(1.0, scores.largest));
}

torch::Tensor run(const Comparison& comparison, const Scorer& scorer, const torch::Tensor& images) {
  try {
    return scorer(images);
  } catch (const std::exception& error) {
    const bool is_the_count = images.size(0) != kTracedBatch;  // it worked with as many as were traced
    throw UsageError("{} is not exported: its {} cannot compute {} images{}. Nothing was published. {}",
                     comparison.model, comparison.file, images.size(0), is_the_count ? kFixedCount : "", error.what());
  }
}

void warn_if_alike(const Extent& scores, const std::string& model) {
  if (scores.range <= kTelling * kRounding * scores.largest)
    log_warning(
        "{} gives all classes and images the same score ({:.2g}, and they range over {:.2g}): comparing the "
        "exported files with it proves little",
        model, scores.largest, scores.range);
}

void require_rows(const Comparison& comparison, const torch::Tensor& found, const torch::Tensor& expected) {
  if (found.sizes() == expected.sizes()) return;
  throw UsageError(
      "{} is not exported: for {} images its {} gives {} rows of scores; forward() has the number of images of one "
      "call in it. Nothing was published",
      comparison.model, expected.size(0), comparison.file, found.dim() > 0 ? found.size(0) : 0);
}

}  // namespace

torch::Device device_of(const torch::nn::Module& module) {
  const std::vector<torch::Tensor> parameters = module.parameters();
  return parameters.empty() ? torch::Device(torch::kCPU) : parameters[0].device();
}

torch::Tensor random_images(const bundle::Input& input, int64_t batch) {
  const auto generator = at::make_generator<at::CPUGeneratorImpl>(static_cast<uint64_t>(batch));
  return torch::randn({batch, input.channels, input.height, input.width}, generator);
}

std::vector<Sample> take_samples(const Network& net, const bundle::Description& description) {
  std::vector<Sample> samples;
  for (const int64_t batch : {kTracedBatch, kTracedBatch + 1, int64_t{1}}) {
    const torch::Tensor images = random_images(description.input, batch);
    samples.push_back({images, original_scores(net, images, description.model_name)});
    if (samples.back().scores.sizes() != at::IntArrayRef{batch, description.output.class_num})
      throw UsageError("{}: for {} images the network gives an output of {}; expected {} rows of {} scores",
                       description.model_name, batch, fmt::join(samples.back().scores.sizes(), " x "), batch,
                       description.output.class_num);
  }
  warn_if_alike(extent(samples), description.model_name);
  return samples;
}

void compare(const Comparison& comparison, const std::vector<Sample>& samples, const Scorer& scorer) {
  const Extent all = extent(samples);
  const double allowed = limit(comparison, all);
  double worst = 0;
  for (const auto& [images, scores] : samples) {
    const torch::Tensor found = run(comparison, scorer, images);
    require_rows(comparison, found, scores);
    const double difference = (found - activated(scores, comparison.activation)).abs().max().item<double>();
    if (!(difference <= allowed))
      throw UsageError(
          "{} is not exported: on {} random images its {} differs from the network by {:.2g}, and {:.2g} is allowed "
          "(activation {}; the network's own scores range over {:.2g}); {}. Nothing was published",
          comparison.model, images.size(0), comparison.file, difference, allowed, to_string(comparison.activation),
          all.range, comparison.advice);
    worst = std::max(worst, difference);
  }
  if (comparison.activation == Activation::none)
    log_info(
        "{} differs from the network by {:.1g} before the activation; {:.1g} is allowed (scores range over {:.2g})",
        comparison.file, worst, allowed, all.range);
}

}  // namespace trireme::deploy
