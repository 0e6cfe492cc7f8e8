#include "trireme/deploy/export/export.h"

#include <fmt/ranges.h>
#include <torch/script.h>
#include <torch/torch.h>

#include <sstream>

#include "trireme/core/durable.h"
#include "trireme/core/error.h"
#include "trireme/core/file.h"
#include "trireme/deploy/export/compare.h"
#include "trireme/deploy/export/fold.h"
#include "trireme/deploy/export/lower.h"
#include "trireme/deploy/export/staging.h"
#include "trireme/deploy/export/torchscript.h"

namespace trireme::deploy {
namespace {

namespace fs = std::filesystem;
using bundle::Activation;
using bundle::Description;

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

void check_arguments(const Network& net, const bundle::Input& input, const std::string& model) {
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

/// Without the activation.
Traced inference_graph(const Network& net, Description& description) {
  const torch::Device device = device_of(*net.module);
  Traced traced = trace(net, random_images(description.input, kTracedBatch).to(device));
  require_finite(traced, description.model_name);
  settle_classes(description, traced);
  fold_batch_norms(traced);
  merge_branches(traced);
  return traced;
}

// --- comparison

Comparison comparison(const Description& description, const char* file, const Options& options) {
  const char* advice = std::string_view(file) == bundle::kTorchFile
                           ? "forward() depends on more than the images: random numbers, their values, a count"
                           : "inference.pt is right, so this is a defect of Trireme; please report it";
  return {description.model_name, file, advice, description.output.activation, options.tolerance};
}

Scorer scorer_of(const std::string& script) {
  std::istringstream bytes(script);
  const auto module = std::make_shared<torch::jit::Module>(torch::jit::load(bytes, torch::kCPU));
  return [module](const torch::Tensor& images) { return module->forward({images}).toTensor(); };
}

Scorer open(const OpenOnnx& opener, const fs::path& folder, const Description& description) {
  try {
    return opener(folder, description);
  } catch (const std::exception& error) {
    throw UsageError("{} is not exported: its {} cannot be read back; nothing was published. {}",
                     description.model_name, bundle::kOnnxFile, error.what());
  }
}

// --- files

/// In memory, because torch's writer ends the process when its disk is full.
std::string torchscript_file(const Traced& traced) {
  std::ostringstream out;
  to_torchscript(traced).save(out);
  return std::move(out).str();
}

void write_onnx(const fs::path& path, const OnnxModel& model) {
  DurableFile file(path, {.bytes_needed = model.size()});
  model.write([&](std::string_view bytes) { file.write(bytes); });
  file.commit();
}

/// Writes the graph as it stands, with description.output.activation at its end, and compares the files with the
/// network.
void write_networks(const Traced& traced, const Description& description, const std::vector<Sample>& samples,
                    const fs::path& folder, const Options& options) {
  const std::string script = torchscript_file(traced);
  compare(comparison(description, bundle::kTorchFile, options), samples, scorer_of(script));
  write_file_atomically(folder / bundle::kTorchFile, script);
  if (!options.onnx) return;
  const Lowered onnx = lower(traced, {description.model_name, description.input.name, description.output.name});
  write_onnx(folder / bundle::kOnnxFile, onnx.model);
  if (!options.open_onnx) return;
  compare(comparison(description, bundle::kOnnxFile, options), samples, open(options.open_onnx, folder, description));
}

}  // namespace

Description export_model(const Network& net, Description description, const fs::path& folder, const Options& options) {
  check_arguments(net, description.input, description.model_name);
  const torch::NoGradGuard no_grad;
  const Evaluation evaluation(*net.module);
  Traced traced = inference_graph(net, description);
  const std::vector<Sample> samples = take_samples(net, description);
  Staging staging(folder);
  Description bare = description;
  bare.output.activation = Activation::none;
  write_networks(traced, bare, samples, staging.path(), options);
  if (description.output.activation != Activation::none) {
    append_activation(traced, description.output.activation);
    // One operator more, for which one image does.
    write_networks(traced, description, {samples.back()}, staging.path(), options);
  }
  description = bundle::write(staging.path(), std::move(description));
  staging.commit({bundle::kTorchFile, bundle::kOnnxFile, bundle::kDescriptionFile});
  return description;
}

}  // namespace trireme::deploy
