#include "trireme/deploy/export/export.h"

#include <fmt/ranges.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/script.h>
#include <torch/torch.h>

#include <optional>
#include <span>
#include <sstream>

#include "trireme/core/durable.h"
#include "trireme/core/error.h"
#include "trireme/core/file.h"
#include "trireme/core/log.h"
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

constexpr size_t kOneImage = 2;  // among the recordings

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

/// The shape of an output, -1 where it follows the images.
Shape open_shape(const Traced& traced, const torch::jit::Value* output) {
  Shape shape = shape_of(output);
  for (const size_t dim : traced.open_dims(output)) shape[dim] = -1;
  return shape;
}

bool is_classifier(const Traced& traced) {
  const torch::jit::Value* scores = traced.outputs()[0];
  return traced.outputs().size() == 1 && shape_of(scores).size() == 2 && traced.is_batch(scores, 0) &&
         traced.open_dims(scores).size() == 1;
}

/// The number of classes, which must be what the description says; or the shapes of other outputs.
void settle_outputs(Description& description, const Traced& traced) {
  bundle::Output& output = description.output;
  if (is_classifier(traced)) {
    const int64_t classes = shape_of(traced.outputs()[0])[1];
    if (output.class_num == 0) output.class_num = classes;
    if (output.class_num != classes)
      throw UsageError("{} gives {} scores an image, but is described with {} classes", description.model_name, classes,
                       output.class_num);
    return;
  }
  std::vector<std::string> shapes;
  for (const torch::jit::Value* value : traced.outputs()) {
    output.shapes.push_back(open_shape(traced, value));
    shapes.push_back(fmt::format("{}", fmt::join(shape_of(value), " x ")));
  }
  if (output.activation != Activation::none || output.class_num != 0)
    throw UsageError(
        "{}: for {} images the network gives an output of {}; expected {} rows of scores. To export it as it is, set "
        "output.activation to none and output.class_num to 0",
        description.model_name, kTracedBatch, fmt::join(shapes, " and "), kTracedBatch);
}

void append_activation(Traced& traced, Activation activation) {
  torch::jit::Graph& graph = *traced.graph;
  torch::jit::Value* scores = traced.outputs()[0];
  torch::jit::Value* result = activation == Activation::softmax
                                  ? graph.insert(c10::aten::softmax, {scores, int64_t{1}, torch::jit::IValue()})
                                  : graph.insert(c10::aten::sigmoid, {scores});
  result->setType(scores->type());
  traced.shapes[result->unique()] = traced.shapes.at(scores->unique());
  graph.block()->replaceOutput(0, result);
}

bool is_short(at::ScalarType type) {
  return type == torch::kBFloat16 || type == torch::kHalf;
}

/// Without the activation.
Traced inference_graph(const Network& net, Description& description, bool any_size) {
  Traced traced = trace(net, description.input, any_size);
  require_finite(traced, description.model_name);
  settle_outputs(description, traced);
  if (is_short(traced.type)) return traced;  // what is folded is rounded again, and that would show
  fold_batch_norms(traced);
  merge_branches(traced);
  return traced;
}

// --- comparison

/// Why inference.pt computes something else than the network, from which it was recorded.
std::string reason_of_difference(const Network& net, const Traced& traced) {
  const Recording& first = traced.recordings[0];
  const torch::Tensor images = first.images.to(device_of(*net.module), traced.type);
  const torch::Tensor again = net.forward(images)[0].to(torch::kCPU, first.outputs[0].scalar_type());
  if (!again.equal(first.outputs[0]))
    return "forward() gives other results for the same images: it uses random numbers, or changes something that it "
           "reads";
  return "forward() depends on the values of the images in C++ code (if, item(), a loop), or writes into a part of a "
         "tensor (x[0] = …), which a recording does not see; use torch::where and torch::cat";
}

Scorer scorer_of(const std::string& script) {
  std::istringstream bytes(script);
  const auto module = std::make_shared<torch::jit::Module>(torch::jit::load(bytes, torch::kCPU));
  return [module](const torch::Tensor& images) -> Outputs {
    const torch::jit::GraphOptimizerEnabledGuard as_recorded(false);
    const torch::jit::IValue result = module->forward({images});
    if (result.isTensor()) return {result.toTensor()};
    Outputs outputs;
    for (const torch::jit::IValue& each : result.toTupleRef().elements()) outputs.push_back(each.toTensor());
    return outputs;
  };
}

Scorer open(const OpenOnnx& opener, const fs::path& folder, const Description& description) {
  try {
    return opener(folder, description);
  } catch (const std::exception& error) {
    throw UsageError("{} is not exported: its {} cannot be read back; nothing was published. {}",
                     description.model_name, bundle::kOnnxFile, error.what());
  }
}

/// The recordings of one size of images after the other, as an engine is opened for one.
std::vector<std::span<const Recording>> by_size(std::span<const Recording> recordings) {
  std::vector<std::span<const Recording>> all;
  for (size_t start = 0, i = 1; i <= recordings.size(); ++i)
    if (i == recordings.size() || recordings[i].images.sizes().slice(1) != recordings[start].images.sizes().slice(1)) {
      all.push_back(recordings.subspan(start, i - start));
      start = i;
    }
  return all;
}

Description of_size(Description description, const torch::Tensor& images) {
  description.input.height = static_cast<int>(images.size(2));
  description.input.width = static_cast<int>(images.size(3));
  return description;
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

/// The graph as it stands, with description.output.activation at its end, as files that are compared with the network.
class Files {
 public:
  Files(const Network& net, const Traced& traced, Description description, const Options& options)
      : net_(net),
        traced_(traced),
        description_(std::move(description)),
        options_(options),
        script_(torchscript_file(traced)) {}

  void compare_script(std::span<const Recording> recordings) const {
    Comparison script = comparison(bundle::kTorchFile);
    script.advice = [this] { return reason_of_difference(net_, traced_); };
    compare(script, recordings, scorer_of(script_));
  }

  void make_onnx() {
    if (options_.onnx)
      onnx_ = lower(traced_, {description_.model_name, description_.input.name, description_.output.name});
  }

  void write(const fs::path& folder) const {
    write_file_atomically(folder / bundle::kTorchFile, script_);
    if (onnx_) write_onnx(folder / bundle::kOnnxFile, onnx_->model);
  }

  /// After write().
  void compare_onnx(const fs::path& folder, std::span<const Recording> recordings) const {
    if (!onnx_ || !options_.open_onnx) return;
    Comparison onnx = comparison(bundle::kOnnxFile);
    onnx.advice = [] { return "inference.pt is right, so this is a defect of Trireme; please report it"; };
    for (const auto same_size : by_size(recordings))
      compare(onnx, same_size, open(options_.open_onnx, folder, of_size(description_, same_size[0].images)));
  }

 private:
  Comparison comparison(const char* file) const {
    return {.model = description_.model_name,
            .file = file,
            .activation = description_.output.activation,
            .tolerance = options_.tolerance,
            .rounding = rounding_of(traced_.type)};
  }

  const Network& net_;
  const Traced& traced_;
  const Description description_;
  const Options& options_;
  const std::string script_;
  std::optional<Lowered> onnx_;
};

void require_onnx_type(const Traced& traced, const Description& description, const Options& options) {
  if (!options.onnx || !is_short(traced.type)) return;
  throw UsageError(
      "{} has weights of type {}, and ONNX files are written in float32 or from double; call net->to(torch::kFloat) "
      "before, or leave out ONNX (.onnx = false)",
      description.model_name, c10::toString(traced.type));
}

void warn_if_not_run(const Options& options) {
  if (!options.onnx || options.open_onnx) return;
  log_warning("{} is written without having been run, as {}; compare its answers with those of {} before it is used",
              bundle::kOnnxFile, options.no_engine, bundle::kTorchFile);
}

Description export_traced(const Network& net, Traced traced, Description description, const fs::path& folder,
                          const Options& options) {
  require_onnx_type(traced, description, options);
  const std::vector<Recording> recordings = traced.recordings;
  warn_if_alike(recordings, description.model_name);
  Description bare = description;
  bare.output.activation = Activation::none;
  Files first(net, traced, bare, options);
  log_info("[export] comparing {} with the network", bundle::kTorchFile);
  first.compare_script(recordings);  // before there is a folder that a crash could leave
  first.make_onnx();
  log_info("[export] writing {}{}", bundle::kTorchFile, options.onnx ? fmt::format(" and {}", bundle::kOnnxFile) : "");
  Staging staging(folder);
  first.write(staging.path());
  if (options.onnx && options.open_onnx) log_info("[export] comparing {} with the network", bundle::kOnnxFile);
  first.compare_onnx(staging.path(), recordings);
  if (description.output.activation != Activation::none) {
    append_activation(traced, description.output.activation);
    const auto one_image = std::span(recordings).subspan(kOneImage, 1);  // one operator more, for which one image does
    Files with_activation(net, traced, description, options);
    with_activation.compare_script(one_image);
    with_activation.make_onnx();
    with_activation.write(staging.path());
    with_activation.compare_onnx(staging.path(), one_image);
  }
  description = bundle::write(staging.path(), std::move(description));
  warn_if_not_run(options);
  staging.commit({bundle::kTorchFile, bundle::kOnnxFile, bundle::kDescriptionFile});
  return description;
}

}  // namespace

Description export_model(const Network& net, Description description, const fs::path& folder, const Options& options) {
  check_arguments(net, description.input, description.model_name);
  const torch::NoGradGuard no_grad;
  const Evaluation evaluation(*net.module);
  Description described = description;
  log_info("[export] tracing {} on images of {} x {} x {}", description.model_name, description.input.channels,
           description.input.height, description.input.width);
  try {
    Traced traced = inference_graph(net, described, options.any_size);
    return export_traced(net, std::move(traced), described, folder, options);
  } catch (const FixedSizeNeeded& needed) {
    log_info("the exported files take images of {} x {} only: {}", description.input.height, description.input.width,
             needed.what());
  }
  Traced traced = inference_graph(net, description, /*any_size=*/false);
  return export_traced(net, std::move(traced), description, folder, options);
}

}  // namespace trireme::deploy
