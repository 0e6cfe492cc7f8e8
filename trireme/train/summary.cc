#include "trireme/train/summary.h"

#include <ATen/record_function.h>
#include <fmt/ranges.h>
#include <torch/torch.h>

#include <algorithm>
#include <optional>
#include <unordered_map>

#include "trireme/train/channels_last.h"

namespace trireme::train {
namespace {

// libtorch calls no hook when a layer is at work. But it tells of every operation, and one that takes a layer's weight
// and something else is that layer's: the outermost such operation gives the shape of the layer's output. One that
// takes nothing else, as when a weight is transposed, makes one more weight of that layer.
class Observer {
 public:
  Observer(const torch::nn::Module& module, std::vector<LayerSummary>& layers) : layers_(layers) {
    for (const auto& item : module.named_modules()) add_leaf(item.key(), *item.value());
    current_ = this;
    handle_ = at::addThreadLocalCallback(at::RecordFunctionCallback(&begin, &end)
                                             .needsInputs(true)
                                             .needsOutputs(true)
                                             .scopes({at::RecordScope::FUNCTION}));
  }
  ~Observer() {
    at::removeCallback(handle_);
    current_ = nullptr;
  }
  Observer(const Observer&) = delete;
  Observer& operator=(const Observer&) = delete;

 private:
  struct Operation : at::ObserverContext {
    std::optional<size_t> layer;  // the owner of the first weight
    bool on_weights_alone = true;
  };

  void add_leaf(const std::string& name, const torch::nn::Module& module);

  void look_at(const torch::Tensor& tensor, Operation& operation) const {
    if (!tensor.defined()) return;
    const auto owner = owners_.find(tensor.unsafeGetTensorImpl());
    if (owner == owners_.end())
      operation.on_weights_alone = false;
    else if (!operation.layer)
      operation.layer = owner->second;
  }

  static std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& function) {
    auto operation = std::make_unique<Operation>();
    for (const c10::IValue& input : function.inputs()) {
      if (input.isTensor()) current_->look_at(input.toTensor(), *operation);
      if (input.isTensorList())
        for (const torch::Tensor& tensor : input.toTensorVector()) current_->look_at(tensor, *operation);
    }
    if (!operation->layer) return nullptr;
    if (!operation->on_weights_alone) {
      if (current_->claimed_[*operation->layer]) return nullptr;
      current_->claimed_[*operation->layer] = true;
    }
    return operation;
  }

  static void end(const at::RecordFunction& function, at::ObserverContext* context) {
    const auto* operation = static_cast<Operation*>(context);
    if (operation == nullptr || function.outputs().empty() || !function.outputs()[0].isTensor()) return;
    const torch::Tensor& output = function.outputs()[0].toTensor();
    if (operation->on_weights_alone)
      current_->own(output, *operation->layer);
    else
      current_->layers_[*operation->layer].output_shape = output.sizes().vec();
  }

  // Kept, so that no other tensor takes its address.
  void own(const torch::Tensor& tensor, size_t layer) {
    if (owners_.emplace(tensor.unsafeGetTensorImpl(), layer).second) kept_.push_back(tensor);
  }

  static thread_local Observer* current_;
  std::vector<LayerSummary>& layers_;
  std::unordered_map<const c10::TensorImpl*, size_t> owners_;
  std::vector<torch::Tensor> kept_;
  std::vector<bool> claimed_;
  at::CallbackHandle handle_ = 0;
};

thread_local Observer* Observer::current_ = nullptr;

std::string type_name(const torch::nn::Module& module) {
  std::string name = module.name();
  name = name.substr(name.rfind(':') == std::string::npos ? 0 : name.rfind(':') + 1);
  return name.ends_with("Impl") ? name.substr(0, name.size() - 4) : name;
}

// Without the integer counters of batch normalisation, which nobody counts as parameters.
template <typename F>
void each_tensor(const torch::nn::Module& module, bool recurse, F use) {
  for (const torch::Tensor& parameter : module.parameters(recurse)) use(parameter);
  for (const torch::Tensor& buffer : module.buffers(recurse))
    if (buffer.is_floating_point()) use(buffer);
}

void Observer::add_leaf(const std::string& name, const torch::nn::Module& module) {
  LayerSummary layer{name, type_name(module), {}, 0};
  each_tensor(module, false, [&](const torch::Tensor& tensor) {
    layer.params += tensor.numel();
    own(tensor, layers_.size());
  });
  if (layer.params == 0 && !module.children().empty()) return;
  layers_.push_back(std::move(layer));
  claimed_.push_back(false);
}

std::string with_commas(int64_t number) {
  const std::string digits = std::to_string(number);
  std::string text;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return text;
}

std::string shape_text(const std::vector<int64_t>& shape) {
  return shape.empty() ? "-" : fmt::format("[{}]", fmt::join(shape, ", "));
}

std::string title(const LayerSummary& layer) {
  return layer.name.empty() ? layer.type : fmt::format("{} ({})", layer.name, layer.type);
}

std::string table(const Summary& summary) {
  size_t names = 16, shapes = 14;
  for (const LayerSummary& layer : summary.layers) {
    names = std::max(names, title(layer).size() + 2);
    shapes = std::max(shapes, shape_text(layer.output_shape).size() + 2);
  }
  const std::string rule(names + shapes + 14, '-');
  std::string text =
      fmt::format("{:<{}}{:<{}}{:>14}\n{}\n", "Layer (type)", names, "Output shape", shapes, "Params", rule);
  for (const LayerSummary& layer : summary.layers)
    text += fmt::format("{:<{}}{:<{}}{:>14}\n", title(layer), names, shape_text(layer.output_shape), shapes,
                        with_commas(layer.params));
  return text + fmt::format("{}\nTotal params: {}\nTrainable params: {}\nNon-trainable params: {}\n", rule,
                            with_commas(summary.total_params), with_commas(summary.trainable_params),
                            with_commas(summary.total_params - summary.trainable_params));
}

torch::Device device_of(const torch::nn::Module& module) {
  const std::vector<torch::Tensor> parameters = module.parameters();
  return parameters.empty() ? torch::Device(torch::kCPU) : parameters[0].device();
}

}  // namespace

Summary summarize(const Network& net, const std::vector<std::vector<int64_t>>& input_sizes, torch::ScalarType dtype) {
  const torch::NoGradGuard no_grad;
  torch::nn::Module& module = *net.module;
  const bool training = module.is_training();
  Tensors inputs;
  for (const std::vector<int64_t>& size : input_sizes)
    inputs.push_back(torch::zeros(size, torch::TensorOptions(device_of(module)).dtype(dtype)));
  Summary summary;
  module.eval();
  {
    const UsualOrder order(module);
    const Observer observer(module, summary.layers);
    net.forward(inputs);
  }
  module.train(training);
  each_tensor(module, true, [&](const torch::Tensor& tensor) {
    summary.total_params += tensor.numel();
    if (tensor.requires_grad()) summary.trainable_params += tensor.numel();
  });
  summary.text = table(summary);
  return summary;
}

}  // namespace trireme::train
