#include "trireme/deploy/export.h"

#include <ATen/CPUGeneratorImpl.h>
#include <fmt/ranges.h>
#include <torch/script.h>
#include <torch/torch.h>

#include <optional>
#include <sstream>

#include "trireme/core/error.h"
#include "trireme/deploy/fold.h"
#include "trireme/deploy/lower.h"
#include "trireme/deploy/staging.h"
#include "trireme/deploy/torchscript.h"
#include "trireme/storage/durable.h"

namespace trireme::deploy {
namespace {

namespace fs = std::filesystem;
using bundle::Activation;
using bundle::Description;

constexpr int64_t kTracedBatch = 2;

/// While it lives, the network and all its parts are in evaluation mode; then each as it was.
class Evaluation {
 public:
  explicit Evaluation(torch::nn::Module& module) {
    for (const auto& part : module.modules()) before_.emplace_back(part, part->is_training());
    module.eval();
  }
  ~Evaluation() {
    for (const auto& [part, training] : before_) part->train(training);  // outer ones first
  }
  Evaluation(const Evaluation&) = delete;
  Evaluation& operator=(const Evaluation&) = delete;

 private:
  std::vector<std::pair<std::shared_ptr<torch::nn::Module>, bool>> before_;
};

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

torch::Device device_of(const torch::nn::Module& module) {
  const std::vector<torch::Tensor> parameters = module.parameters();
  return parameters.empty() ? torch::Device(torch::kCPU) : parameters[0].device();
}

/// With a generator of their own: the caller's random numbers stay what they would be.
torch::Tensor random_images(const bundle::Input& input, int64_t batch) {
  const auto generator = at::make_generator<at::CPUGeneratorImpl>(static_cast<uint64_t>(batch));
  return torch::randn({batch, input.channels, input.height, input.width}, generator);
}

void require_sense(const Network& net, const bundle::Input& input, const std::string& model) {
  if (!net.module || !net.forward) throw UsageError("{}: there is no network to export", model);
  if (input.channels < 1 || input.height < 1 || input.width < 1)
    throw UsageError("{}: images of {} x {} x {} (channels, height, width); each must be 1 or more", model,
                     input.channels, input.height, input.width);
}

void require_finite(const Traced& traced, const std::string& model) {
  for (const auto& [value, weight] : traced.weights)
    if (weight.value.is_floating_point() && !weight.value.isfinite().all().item<bool>())
      throw UsageError("{} is not exported: its weight {} has values that are not finite", model, weight.name);
}

/// The number of classes, which must be what the description says.
void settle_classes(Description& description, const Traced& traced) {
  const std::vector<int64_t> shape = shape_of(traced.scores());
  if (shape.size() != 2 || shape[0] != kTracedBatch)
    throw UsageError("{}: for {} images the network gives an output of {}; expected {} rows of scores",
                     description.model_name, kTracedBatch, fmt::join(shape, " x "), kTracedBatch);
  int64_t& classes = description.output.class_num;
  if (classes == 0) classes = shape[1];
  if (classes != shape[1])
    throw UsageError("{} gives {} scores an image, but is described with {} classes", description.model_name, shape[1],
                     classes);
}

void append_activation(const Traced& traced, Activation activation) {
  if (activation == Activation::none) return;
  torch::jit::Graph& graph = *traced.graph;
  torch::jit::Value* scores = traced.scores();
  torch::jit::Value* result = activation == Activation::softmax
                                  ? graph.insert(c10::aten::softmax, {scores, int64_t{1}, torch::jit::IValue()})
                                  : graph.insert(c10::aten::sigmoid, {scores});
  result->setType(scores->type());
  graph.block()->replaceOutput(0, result);
}

torch::Tensor activated(const torch::Tensor& scores, Activation activation) {
  if (activation == Activation::none) return scores;
  return activation == Activation::softmax ? scores.softmax(1) : scores.sigmoid();
}

Traced inference_graph(const Network& net, Description& description) {
  const torch::Device device = device_of(*net.module);
  Traced traced = trace(net, random_images(description.input, kTracedBatch).to(device));
  require_finite(traced, description.model_name);
  settle_classes(description, traced);
  fold_batch_norms(traced);
  merge_branches(traced);
  append_activation(traced, description.output.activation);
  return traced;
}

// --- comparison

torch::Tensor run(torch::jit::Module& module, const torch::Tensor& images, const std::string& model) {
  try {
    return module.forward({images}).toTensor();
  } catch (const std::exception& error) {
    throw UsageError(
        "{} works with {} images but not with {}: its forward() has the number of images of one call in "
        "it; say flatten(1) instead of view, and avoid loops over images. {}",
        model, kTracedBatch, images.size(0), error.what());
  }
}

void compare(const torch::Tensor& ours, const torch::Tensor& expected, const std::string& model, double tolerance) {
  if (ours.sizes() != expected.sizes())
    throw UsageError(
        "{} is not exported: for {} images the traced network gives {} rows; its forward() has the number "
        "of images of one call in it",
        model, expected.size(0), ours.size(0));
  const double difference = (ours - expected).abs().max().item<double>();
  const double limit = tolerance * expected.abs().max().item<double>();
  if (!(difference <= limit))
    throw UsageError(
        "{} is not exported: on {} random images the traced network differs from it by {:.3g}, and {:.3g} "
        "is allowed; its forward() depends on more than the images (random numbers, their values, a count)",
        model, expected.size(0), difference, limit);
}

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

/// With as many images as were traced, and with one more.
void check(const std::string& file, const Network& net, const Description& description, double tolerance) {
  std::istringstream bytes(file);
  torch::jit::Module module = torch::jit::load(bytes, torch::kCPU);
  const std::string& model = description.model_name;
  for (const int64_t batch : {kTracedBatch, kTracedBatch + 1}) {
    const torch::Tensor images = random_images(description.input, batch);
    const torch::Tensor expected = activated(original_scores(net, images, model), description.output.activation);
    compare(run(module, images, model), expected, model, tolerance);
  }
}

// --- files

/// In memory, because torch's writer ends the process when its disk is full.
std::string torchscript_file(const Traced& traced) {
  std::ostringstream out;
  to_torchscript(traced).save(out);
  return std::move(out).str();
}

void write_torchscript(const fs::path& path, const std::string& content) {
  io::DurableFile file(path, {.bytes_needed = content.size()});
  file.write(content);
  file.commit();
}

void write_onnx(const fs::path& path, const OnnxModel& model) {
  io::DurableFile file(path, {.bytes_needed = model.size()});
  model.write([&](std::string_view bytes) { file.write(bytes); });
  file.commit();
}

}  // namespace

Description export_model(const Network& net, Description description, const fs::path& folder, const Options& options) {
  require_sense(net, description.input, description.model_name);
  const torch::NoGradGuard no_grad;
  const Evaluation evaluation(*net.module);
  const Traced traced = inference_graph(net, description);
  const std::string script = torchscript_file(traced);
  check(script, net, description, options.tolerance);
  std::optional<Lowered> onnx;
  if (options.onnx) onnx = lower(traced, {description.model_name, description.input.name, description.output.name});
  Staging staging(folder);
  write_torchscript(staging.path() / bundle::kTorchFile, script);
  if (onnx) write_onnx(staging.path() / bundle::kOnnxFile, onnx->model);
  bundle::write(staging.path(), description);
  staging.commit({bundle::kTorchFile, bundle::kOnnxFile, bundle::kDescriptionFile});
  return description;
}

}  // namespace trireme::deploy
