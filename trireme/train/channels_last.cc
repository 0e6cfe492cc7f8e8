#include "trireme/train/channels_last.h"

#include <torch/torch.h>

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "trireme/core/env.h"
#include "trireme/core/error.h"
#include "trireme/core/log.h"
#include "trireme/io/rng_state.h"
#include "trireme/nn/channels_last.h"
#include "trireme/train/step_parts.h"

namespace trireme::train {
namespace {

constexpr int64_t kImageDims = 4;
constexpr const char* kCure = "replace x.view(…) by x.reshape(…) or x.flatten(1)";

bool has_image_weights(const torch::nn::Module& module) {
  const std::vector<torch::Tensor> parameters = module.parameters();
  return std::any_of(parameters.begin(), parameters.end(),
                     [](const torch::Tensor& parameter) { return parameter.dim() == kImageDims; });
}

bool is_strided(const torch::Tensor& tensor) {
  return tensor.defined() && tensor.layout() == torch::kStrided;
}

// With canonical strides also where one channel leaves a choice, which contiguous() would keep.
torch::Tensor in_usual_order(const torch::Tensor& parameter) {
  return torch::empty_like(parameter, parameter.options().memory_format(torch::MemoryFormat::Contiguous))
      .copy_(parameter);
}

bool refuses_layout(const c10::Error& error) {
  return std::string_view(error.what_without_backtrace()).find("view size is not compatible") != std::string_view::npos;
}

// What a pass changes before it fails: the running statistics, and the random number generators when it has drawn.
class SavedState {
 public:
  explicit SavedState(const torch::nn::Module& module) : buffers_(module.buffers()), generators_(io::rng_state()) {
    for (const torch::Tensor& buffer : buffers_) copies_.push_back(buffer.detach().clone());
  }
  void restore() {
    const torch::NoGradGuard no_grad;
    for (size_t i = 0; i < buffers_.size(); ++i) buffers_[i].copy_(copies_[i]);
    io::set_rng_state(generators_);
  }

 private:
  std::vector<torch::Tensor> buffers_, copies_;
  io::TensorMap generators_;
};

class ImageForward {
 public:
  ImageForward(std::shared_ptr<torch::nn::Module> module, Forward forward)
      : module_(std::move(module)), forward_(std::move(forward)) {}

  Tensors run(const Tensors& inputs) {
    if (state_ == State::usual) return forward_(inputs);
    if (state_ == State::first) return run_first(inputs);
    try {
      return run_laid_out(inputs);
    } catch (const c10::Error& error) {
      if (!refuses_layout(error)) throw;
      refuse(error);
    }
  }

 private:
  enum class State { first, channels_last, usual };

  // Outputs are contiguous: losses and metrics may view() them, and programs may read their memory.
  Tensors run_laid_out(const Tensors& inputs) const {
    Tensors images;
    for (const torch::Tensor& input : inputs) images.push_back(to_channels_last(input));
    Tensors outputs = forward_(images);
    for (torch::Tensor& output : outputs)
      if (is_strided(output)) output = output.contiguous();
    return outputs;
  }

  Tensors run_first(const Tensors& inputs) {
    SavedState before(*module_);
    try {
      Tensors outputs = run_laid_out(inputs);
      state_ = State::channels_last;
      return outputs;
    } catch (const c10::Error& error) {
      if (!refuses_layout(error)) throw;
      if (is_split(*module_)) refuse(error);
    }
    log_warning(
        "the network's forward() calls view() on what a convolution returns, which needs another memory order than "
        "channels last; it trains in that order, more slowly. To have the speed, {}",
        kCure);
    to_usual_order(*module_);
    before.restore();
    state_ = State::usual;
    return forward_(inputs);
  }

  [[noreturn]] static void refuse(const c10::Error& error) {
    throw UsageError(
        "the network's forward() cannot work on images that lie channels last: {}; {}, or switch it off with "
        ".channels_last = false",
        error.what_without_backtrace(), kCure);
  }

  const std::shared_ptr<torch::nn::Module> module_;
  const Forward forward_;
  State state_ = State::first;
};

}  // namespace

bool may_use_channels_last() {
  return env::get("TRIREME_CHANNELS_LAST") != "0";
}

torch::Tensor to_channels_last(const torch::Tensor& images) {
  const bool is_batch_of_images = is_strided(images) && images.dim() == kImageDims;
  return is_batch_of_images ? images.contiguous(torch::MemoryFormat::ChannelsLast) : images;
}

void to_usual_order(torch::nn::Module& module) {
  const torch::NoGradGuard no_grad;
  for (torch::Tensor& parameter : module.parameters())
    if (parameter.dim() == kImageDims) parameter.set_data(in_usual_order(parameter));
}

UsualOrder::UsualOrder(const torch::nn::Module& module) {
  if (is_split(module)) return;
  const torch::NoGradGuard no_grad;
  for (const torch::Tensor& parameter : module.parameters())
    if (parameter.suggest_memory_format() == torch::MemoryFormat::ChannelsLast)
      before_.emplace_back(parameter, parameter.data());
  for (auto& [parameter, data] : before_) parameter.set_data(in_usual_order(data));
}

UsualOrder::~UsualOrder() {
  for (auto& [parameter, data] : before_) parameter.set_data(data);
}

Forward with_channels_last(const std::shared_ptr<torch::nn::Module>& module, Forward forward) {
  if (!may_use_channels_last() || !has_image_weights(*module) || is_split(*module)) return forward;
  nn::to_channels_last(*module);
  const auto images = std::make_shared<ImageForward>(module, std::move(forward));
  return [images](const Tensors& inputs) { return images->run(inputs); };
}

}  // namespace trireme::train
