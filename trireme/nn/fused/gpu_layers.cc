#include "trireme/nn/fused/gpu_layers.h"

#include <ATen/autocast_mode.h>
#include <torch/torch.h>

#include <memory>
#include <utility>

#include "trireme/nn/batch_norm_state.h"
#include "trireme/nn/fused/gpu_operators.h"
#include "trireme/nn/fused/norm_layer.h"

namespace trireme::nn::fused::gpu {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
constexpr auto kChannelsLast = at::MemoryFormat::ChannelsLast;

bool has_whole_vectors(const torch::Tensor& x) {
  return x.size(1) % (x.scalar_type() == torch::kFloat ? 4 : 8) == 0;
}

bool is_float_row(const torch::Tensor& tensor, const torch::Tensor& x) {
  return tensor.defined() && tensor.device() == x.device() && tensor.scalar_type() == torch::kFloat &&
         tensor.is_contiguous() && tensor.numel() == x.size(1);
}

/// As backward wants it of whatever order the gradient has come in.
torch::Tensor as_image(const torch::Tensor& gradient, const torch::Tensor& like) {
  return gradient.to(like.scalar_type()).contiguous(kChannelsLast);
}

/// Of an output that was given out once or twice: the gradient, and what is to be added to it.
std::pair<torch::Tensor, std::optional<torch::Tensor>> gradients_of(const variable_list& outputs,
                                                                    const torch::Tensor& like) {
  std::vector<torch::Tensor> there;
  for (const torch::Tensor& output : outputs)
    if (output.defined()) there.push_back(as_image(output, like));
  there.resize(2);
  return {there[0], there[1].defined() ? std::optional(there[1]) : std::nullopt};
}

class NormFunction : public torch::autograd::Function<NormFunction> {
 public:
  static variable_list forward(AutogradContext* context, const torch::Tensor& x, const torch::Tensor& weight,
                               const torch::Tensor& bias, const std::optional<torch::Tensor>& residual,
                               const torch::nn::BatchNorm2dImpl& norm, int64_t act, bool twice) {
    const at::AutoDispatchBelowADInplaceOrView below;
    NormCall call{.x = x,
                  .weight = weight,
                  .bias = bias,
                  .residual = residual,
                  .running_mean = {},
                  .running_var = {},
                  .batches = {},
                  .epsilon = norm.options.eps(),
                  .momentum = norm.options.momentum().value(),
                  .act = act};
    // to(dtype) makes another type of the counter, too.
    if (norm.num_batches_tracked.scalar_type() == torch::kLong) {
      call.batches = norm.num_batches_tracked;
    } else {
      norm.num_batches_tracked.add_(1);
    }
    if (!running_statistics_stay()) {
      call.running_mean = norm.running_mean;
      call.running_var = norm.running_var;
    }
    const auto [y, statistics] = norm_act(call);
    const Behind behind = behind_of(act, residual.has_value());
    context->save_for_backward({x, weight, statistics,
                                behind == Behind::output     ? y
                                : behind == Behind::residual ? *residual
                                                             : torch::Tensor()});
    context->saved_data["act"] = act;
    context->saved_data["behind"] = static_cast<int64_t>(behind);
    context->saved_data["has_residual"] = residual.has_value();
    context->set_materialize_grads(false);
    return twice ? variable_list{y, at::alias(y)} : variable_list{y};
  }

  static variable_list backward(AutogradContext* context, const variable_list& outputs) {
    refuse_second_derivative();
    const variable_list saved = context->get_saved_variables();
    const torch::Tensor &x = saved[0], &weight = saved[1], &statistics = saved[2], &beside = saved[3];
    auto [dy, more_dy] = gradients_of(outputs, x);
    if (!dy.defined()) return variable_list(7);
    const at::AutoDispatchBelowADInplaceOrView below;
    const std::vector<at::Tensor> found =
        norm_act_backward({.dy = dy,
                           .x = x,
                           .more_dy = more_dy,
                           .behind = static_cast<Behind>(context->saved_data["behind"].toInt()),
                           .beside = beside.defined() ? std::optional(beside) : std::nullopt,
                           .weight = weight,
                           .statistics = statistics,
                           .act = context->saved_data["act"].toInt()});
    torch::Tensor d_residual;
    if (context->saved_data["has_residual"].toBool())
      d_residual = found.size() > 3 ? found[3] : more_dy ? dy + *more_dy : dy;
    return {found[0], found[1], found[2], d_residual, torch::Tensor(), torch::Tensor(), torch::Tensor()};
  }

 private:
  /// What tells backward whether the activation let a number through, where something was added in front of it.
  static Behind behind_of(int64_t act, bool has_residual) {
    const auto kind = static_cast<kernels::Act>(act);
    if (!has_residual || kind == kernels::Act::none) return Behind::nothing;
    const bool says_output = kind == kernels::Act::relu || kind == kernels::Act::relu6;
    return says_output ? Behind::output : Behind::residual;
  }
};

bool can_fuse(const torch::nn::BatchNorm2dImpl& norm, const torch::Tensor& x, Activation activation,
              const torch::Tensor& residual) {
  if (!can_take(x) || !torch::GradMode::is_enabled() || !has_whole_vectors(x)) return false;
  const torch::nn::BatchNormOptions& options = norm.options;
  const bool is_known = activation == Activation::none || act_of(activation) != kernels::Act::none;
  const bool fits = is_known && norm.is_training() && options.affine() && options.track_running_stats() &&
                    options.momentum().has_value() && norm.num_batches_tracked.defined() &&
                    norm.num_batches_tracked.device() == x.device();
  const bool residual_fits =
      !residual.defined() ||
      (residual.sizes() == x.sizes() && residual.scalar_type() == x.scalar_type() && residual.device() == x.device());
  return fits && residual_fits && is_float_row(norm.weight, x) && is_float_row(norm.bias, x) &&
         is_float_row(norm.running_mean, x) && is_float_row(norm.running_var, x) && x.numel() > x.size(1) &&
         !norm_peers(norm.weight);
}

class DepthwiseFunction : public torch::autograd::Function<DepthwiseFunction> {
 public:
  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& x, const torch::Tensor& weight,
                               int64_t stride) {
    const at::AutoDispatchBelowADInplaceOrView below;
    context->save_for_backward({x, weight});
    context->saved_data["stride"] = stride;
    return depthwise(x, weight, stride);
  }

  static variable_list backward(AutogradContext* context, const variable_list& outputs) {
    refuse_second_derivative();
    const variable_list saved = context->get_saved_variables();
    const torch::Tensor dy = as_image(outputs[0], saved[0]);
    const at::AutoDispatchBelowADInplaceOrView below;
    std::vector<at::Tensor> found =
        depthwise_backward(dy, saved[0], saved[1], context->saved_data["stride"].toInt(), context->needs_input_grad(0));
    found.resize(2);
    return {found[1], found[0], torch::Tensor()};
  }
};

/// x in the type in which autocast would run a convolution.
torch::Tensor in_convolution_type(const torch::Tensor& x) {
  if (!at::autocast::is_autocast_enabled(at::kCUDA)) return x;
  return x.to(at::autocast::get_autocast_dtype(at::kCUDA));
}

/// Square kernels and strides, no bias, and padding that keeps the size at stride 1.
bool is_plain(const torch::nn::Conv2dImpl& conv) {
  const auto& options = conv.options;
  const auto* padding = std::get_if<torch::ExpandingArray<2>>(&options.padding());
  const int64_t kernel = options.kernel_size()->at(0), stride = options.stride()->at(0);
  return padding && options.kernel_size()->at(1) == kernel && options.stride()->at(1) == stride && kernel % 2 == 1 &&
         (*padding)->at(0) == (kernel - 1) / 2 && (*padding)->at(1) == (kernel - 1) / 2 &&
         options.dilation()->at(0) == 1 && options.dilation()->at(1) == 1 && !options.bias() &&
         std::holds_alternative<torch::enumtype::kZeros>(options.padding_mode());
}

bool is_depthwise(const torch::nn::Conv2dImpl& conv, const torch::Tensor& x) {
  const auto& options = conv.options;
  const int64_t kernel = options.kernel_size()->at(0), stride = options.stride()->at(0);
  return options.groups() == x.size(1) && options.out_channels() == x.size(1) && x.size(1) > 1 &&
         (kernel == 3 || kernel == 5) && (stride == 1 || stride == 2) && has_whole_vectors(x);
}

/// A kernel of 3 or 7 at stride 2, which begins at an even pixel once a row and a column of zeros stand before it.
bool is_first(const torch::nn::Conv2dImpl& conv, const torch::Tensor& x) {
  const auto& options = conv.options;
  const int64_t kernel = options.kernel_size()->at(0), stride = options.stride()->at(0);
  return options.groups() == 1 && conv.weight.size(1) == x.size(1) && x.size(1) <= 4 && stride == 2 &&
         kernel % 4 == 3 && x.size(2) % 2 == 0 && x.size(3) % 2 == 0 && !x.requires_grad() &&
         x.scalar_type() != torch::kDouble;
}

/// [out, channels, kernel, kernel] for the picture as one of squares.
torch::Tensor weight_of_squares(const torch::Tensor& weight, int64_t channels_out) {
  const int64_t out = weight.size(0), in = weight.size(1), taps = (weight.size(2) + 1) / 2;
  const torch::Tensor grouped = torch::constant_pad_nd(weight, {1, 0, 1, 0})
                                    .view({out, in, taps, 2, taps, 2})
                                    .permute({0, 3, 5, 1, 2, 4})
                                    .reshape({out, 4 * in, taps, taps});
  return torch::constant_pad_nd(grouped, {0, 0, 0, 0, 0, channels_out - 4 * in});
}

torch::Tensor convolve_squares(const torch::Tensor& x, const torch::Tensor& weight, at::ScalarType type) {
  const int64_t taps = (weight.size(2) + 1) / 2, before = (weight.size(2) + 1) / 4;
  torch::Tensor image;
  {
    const at::AutoDispatchBelowADInplaceOrView below;
    image = squares(x, before, taps - 1 - before, type);
  }
  return torch::conv2d(image, weight_of_squares(weight, kSquareChannels).to(type, false, false, kChannelsLast));
}

class PoolFunction : public torch::autograd::Function<PoolFunction> {
 public:
  static variable_list forward(AutogradContext* context, const torch::Tensor& x, const Window& window, bool twice) {
    const at::AutoDispatchBelowADInplaceOrView below;
    const auto [y, places] = gpu::max_pool(x, window);
    context->save_for_backward({places});
    context->saved_data["size"] = x.sizes();
    context->saved_data["window"] = std::vector<int64_t>{window.kernel, window.stride, window.padding};
    context->set_materialize_grads(false);
    return twice ? variable_list{y, at::alias(y)} : variable_list{y};
  }

  static variable_list backward(AutogradContext* context, const variable_list& outputs) {
    refuse_second_derivative();
    const torch::Tensor& any = outputs[0].defined() ? outputs[0] : outputs.back();
    const auto [dy, more_dy] = gradients_of(outputs, any);
    if (!dy.defined()) return variable_list(3);
    const std::vector<int64_t> numbers = context->saved_data["window"].toIntVector();
    const at::AutoDispatchBelowADInplaceOrView below;
    return {max_pool_backward(dy, more_dy, context->get_saved_variables()[0], context->saved_data["size"].toIntVector(),
                              {numbers[0], numbers[1], numbers[2]}),
            torch::Tensor(), torch::Tensor()};
  }
};

}  // namespace

namespace {

variable_list run_norm(const torch::nn::BatchNorm2dImpl& norm, const torch::Tensor& x, Activation activation,
                       const torch::Tensor& residual, bool twice) {
  return NormFunction::apply(x, norm.weight, norm.bias,
                             residual.defined() ? std::optional(residual.contiguous(kChannelsLast)) : std::nullopt,
                             norm, static_cast<int64_t>(act_of(activation)), twice);
}

}  // namespace

std::optional<torch::Tensor> norm_add_act(const torch::nn::BatchNorm2dImpl& norm, const torch::Tensor& x,
                                          Activation activation, const torch::Tensor& residual) {
  if (!can_fuse(norm, x, activation, residual)) return std::nullopt;
  return run_norm(norm, x, activation, residual, /*twice=*/false)[0];
}

std::optional<Twice> norm_add_act_twice(const torch::nn::BatchNorm2dImpl& norm, const torch::Tensor& x,
                                        Activation activation, const torch::Tensor& residual) {
  if (!can_fuse(norm, x, activation, residual)) return std::nullopt;
  const variable_list both = run_norm(norm, x, activation, residual, /*twice=*/true);
  return Twice{both[0], both[1]};
}

torch::Tensor convolve(torch::nn::Conv2dImpl& conv, const torch::Tensor& x) {
  const bool may_take = x.is_cuda() && x.dim() == 4 && conv.weight.device() == x.device() && is_plain(conv) &&
                        x.size(1) * conv.weight.size(1) > 0;
  if (may_take && is_depthwise(conv, x) && can_take(x))
    return DepthwiseFunction::apply(in_convolution_type(x), conv.weight, conv.options.stride()->at(0));
  const auto type = may_take ? in_convolution_type(x.new_empty({0})).scalar_type() : at::kFloat;
  if (may_take && type != at::kFloat && is_first(conv, x) && can_take_any_order(x))
    return convolve_squares(x, conv.weight, type);
  return conv.forward(x);
}

Twice max_pool_twice(const torch::Tensor& x, int64_t kernel, int64_t stride, int64_t padding) {
  constexpr int64_t kMaxKernel = 15;  // a place in the window is kept in a byte
  if (!can_take(x) || !has_whole_vectors(x) || !torch::GradMode::is_enabled() || kernel > kMaxKernel) {
    const torch::Tensor y = torch::max_pool2d(x, kernel, stride, padding);
    return {y, y};
  }
  const variable_list both = PoolFunction::apply(x, Window{kernel, stride, padding}, /*twice=*/true);
  return {both[0], both[1]};
}

torch::Tensor max_pool(const torch::Tensor& x, int64_t kernel, int64_t stride, int64_t padding) {
  return max_pool_twice(x, kernel, stride, padding).first;
}

namespace {

/// What the gradient of the gated image leaves for that of the means, which makes both into x's.
struct Memo : torch::CustomClassHolder {
  torch::Tensor dy, gate;
};

torch::Tensor as_rows(const torch::Tensor& numbers) {
  return numbers.to(torch::kFloat).contiguous();
}

class GateFunction : public torch::autograd::Function<GateFunction> {
 public:
  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& x, const torch::Tensor& gates,
                               const c10::intrusive_ptr<Memo>& memo) {
    const at::AutoDispatchBelowADInplaceOrView below;
    const torch::Tensor rows = as_rows(gates);
    context->save_for_backward({x, rows});
    context->saved_data["memo"] = c10::IValue::make_capsule(memo);
    context->saved_data["type"] = static_cast<int64_t>(gates.scalar_type());
    return gate(x, rows, {});
  }

  static variable_list backward(AutogradContext* context, const variable_list& outputs) {
    refuse_second_derivative();
    const variable_list saved = context->get_saved_variables();
    const torch::Tensor &x = saved[0], &gates = saved[1];
    const auto memo = c10::static_intrusive_pointer_cast<Memo>(context->saved_data["memo"].toCapsule());
    memo->dy = as_image(outputs[0], x);
    memo->gate = gates;
    const at::AutoDispatchBelowADInplaceOrView below;
    const torch::Tensor sums = image_sums(memo->dy, x, 1);
    return {torch::Tensor(), sums.to(static_cast<at::ScalarType>(context->saved_data["type"].toInt())),
            torch::Tensor()};
  }
};

class MeansFunction : public torch::autograd::Function<MeansFunction> {
 public:
  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& x, const c10::intrusive_ptr<Memo>& memo) {
    const at::AutoDispatchBelowADInplaceOrView below;
    context->saved_data["memo"] = c10::IValue::make_capsule(memo);
    context->saved_data["size"] = x.sizes();
    context->saved_data["type"] = static_cast<int64_t>(x.scalar_type());
    const auto pixels = static_cast<double>(x.size(2) * x.size(3));
    return image_sums(x, {}, 1 / pixels).to(x.scalar_type());
  }

  static variable_list backward(AutogradContext* context, const variable_list& outputs) {
    refuse_second_derivative();
    const auto memo = c10::static_intrusive_pointer_cast<Memo>(context->saved_data["memo"].toCapsule());
    const std::vector<int64_t> size = context->saved_data["size"].toIntVector();
    const at::AutoDispatchBelowADInplaceOrView below;
    const torch::Tensor share = as_rows(outputs[0]) / static_cast<double>(size[2] * size[3]);
    const torch::Tensor dy = std::exchange(memo->dy, {}), gates = std::exchange(memo->gate, {});
    if (dy.defined()) return {gate(dy, gates, share), torch::Tensor()};
    // The gated image had no gradient: the means' alone.
    const auto type = static_cast<at::ScalarType>(context->saved_data["type"].toInt());
    return {share.to(type).view({size[0], size[1], 1, 1}).expand(size).contiguous(kChannelsLast), torch::Tensor()};
  }
};

}  // namespace

std::optional<SqueezedImage> SqueezedImage::of(const torch::Tensor& x) {
  constexpr int64_t kMaxImages = 65535;  // one row of the kernel's grid for each
  if (!can_take(x) || !has_whole_vectors(x) || !torch::GradMode::is_enabled() || !x.requires_grad() ||
      x.size(0) > kMaxImages)
    return std::nullopt;
  SqueezedImage image;
  image.x_ = x;
  auto memo = c10::make_intrusive<Memo>();
  image.memo_ = memo;
  image.means_ = MeansFunction::apply(x, memo);
  return image;
}

torch::Tensor SqueezedImage::times(const torch::Tensor& gates) const {
  return GateFunction::apply(x_, gates, c10::static_intrusive_pointer_cast<Memo>(memo_));
}

}  // namespace trireme::nn::fused::gpu
