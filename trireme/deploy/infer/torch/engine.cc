// Networks by libtorch, on the CPU or a GPU.
#include <dlfcn.h>
#include <torch/script.h>
#include <torch/torch.h>

#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/deploy/infer/engine_plugin.h"

namespace trireme::infer {
namespace {

at::ScalarType scalar_type(Precision precision) {
  if (precision == Precision::fp32) return at::kFloat;
  return precision == Precision::bf16 ? at::kBFloat16 : at::kHalf;
}

/// The first sentence says what is wrong with the file; advice follows.
std::string first_sentence(const std::string& text) {
  return std::string(trim(text.substr(0, std::min(text.find('\n'), text.find(". ")))));
}

/// CUDA is in a library of its own, which registers itself when loaded. Found by this plugin's RUNPATH.
at::Device device_for(const EngineOptions& options) {
  if (!options.use_gpu) return at::kCPU;
  ::dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_GLOBAL);
  const auto gpus = torch::cuda::is_available() ? static_cast<int>(torch::cuda::device_count()) : 0;
  if (options.gpu_id < 0 || options.gpu_id >= gpus)
    throw UsageError("there is no GPU {}: libtorch sees {} here; compute on the CPU, or see `trireme doctor`",
                     options.gpu_id, gpus);
  return {at::kCUDA, static_cast<at::DeviceIndex>(options.gpu_id)};
}

/// The weights are constants of a frozen graph; their kind is what the network computes in.
void convert_constants(torch::jit::Block* block, at::ScalarType type) {
  for (torch::jit::Node* node : block->nodes()) {
    for (torch::jit::Block* inner : node->blocks()) convert_constants(inner, type);
    if (node->kind() != torch::jit::prim::Constant || !node->hasAttribute(torch::jit::attr::value)) continue;
    if (node->kindOf(torch::jit::attr::value) != torch::jit::AttributeKind::t) continue;
    const at::Tensor weights = node->t(torch::jit::attr::value);
    if (!weights.is_floating_point()) continue;
    node->t_(torch::jit::attr::value, weights.to(type));
    node->output()->inferTypeFrom(node->t(torch::jit::attr::value));
  }
}

class TorchEngine : public Engine {
 public:
  TorchEngine(const EngineOptions& options, const bundle::Description& description)
      : options_(options),
        input_(description.input),
        classes_(description.output.class_num),
        device_(device_for(options)),
        type_(scalar_type(options.precision)) {
    if (options.cpu_threads > 0) at::set_num_threads(options.cpu_threads);
    load(options.folder / bundle::kTorchFile);
    check_shapes();
  }

  std::string name() const override {
    const std::string where =
        device_.is_cuda()
            ? fmt::format("GPU {}, {}", options_.gpu_id, to_string(options_.precision))
            : fmt::format("the CPU, {}, threads: {}", to_string(options_.precision), at::get_num_threads());
    return fmt::format("libtorch {} on {}", TORCH_VERSION, where);
  }

  void run(std::span<const float> images, int64_t batch, std::span<float> scores) override {
    const c10::InferenceMode no_gradients;
    const at::Tensor out = at::from_blob(scores.data(), {batch, classes_}, at::kFloat);
    try {
      out.copy_(forward(images.data(), batch));  // waits for a GPU
    } catch (const std::exception& error) {
      throw UsageError("libtorch cannot compute a batch of {}: {}", batch, last_line(error.what()));
    }
  }

 private:
  /// In channels_last, in which libtorch's convolutions are twice as fast.
  at::Tensor forward(const float* images, int64_t batch) {
    // libtorch takes no pointer to const; the network does not write to its input.
    const at::Tensor in =
        at::from_blob(const_cast<float*>(images), {batch, input_.channels, input_.height, input_.width}, at::kFloat);
    // In two steps: in one, the CPU would convert, and its threads get in the way of those that decode.
    const at::Tensor moved = in.to(device_).to(type_).contiguous(at::MemoryFormat::ChannelsLast);
    return module_.forward({moved}).toTensor();
  }

  void load(const std::filesystem::path& file) {
    try {
      const c10::InferenceMode no_gradients;
      module_ = torch::jit::load(file.string(), device_);
      module_.eval();
      module_ = torch::jit::freeze(module_);
      if (type_ != at::kFloat) convert_constants(module_.get_method("forward").graph()->block(), type_);
    } catch (const std::exception& error) {
      throw UsageError("{} is damaged or not a network that libtorch can read: {}", file.string(),
                       first_sentence(error.what()));
    }
  }

  /// A traced network does not tell its shapes; one picture does.
  void check_shapes() {
    const c10::InferenceMode no_gradients;
    const std::vector<float> zeros(input_.elements());
    at::Tensor out;
    try {
      out = forward(zeros.data(), 1);
    } catch (const std::exception& error) {
      throw UsageError("{} cannot compute a picture of {}x{}x{}, as {} says: {}", file(), input_.channels,
                       input_.height, input_.width, bundle::kDescriptionFile, last_line(error.what()));
    }
    if (out.dim() != 2 || out.size(1) != classes_)
      throw UsageError("{} gives {} numbers a picture, but {} says {} classes; export both again", file(), out.numel(),
                       bundle::kDescriptionFile, classes_);
  }

  std::string file() const { return (options_.folder / bundle::kTorchFile).string(); }

  const EngineOptions options_;
  const bundle::Input input_;
  const int64_t classes_;
  const at::Device device_;
  const at::ScalarType type_;
  torch::jit::Module module_;
};

std::unique_ptr<Engine> make(const EngineOptions& options, const bundle::Description& description,
                             const EngineSetting& /*setting: the variable for oneDNN is set already*/) {
  return std::make_unique<TorchEngine>(options, description);
}

const EnginePlugin kPlugin = {.version = kVersion, .make = make};

}  // namespace
}  // namespace trireme::infer

extern "C" [[gnu::visibility("default")]] const trireme::infer::EnginePlugin* trireme_engine_plugin() {
  return &trireme::infer::kPlugin;
}
