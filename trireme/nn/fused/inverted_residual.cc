#include "trireme/nn/fused/inverted_residual.h"

#include <torch/library.h>
#include <torch/torch.h>

#include <utility>
#include <variant>
#include <vector>

#include "trireme/core/levers.h"
#include "trireme/nn/batch_norm_state.h"
#include "trireme/nn/fused/block_passes.h"
#include "trireme/nn/fused/norm_layer.h"

namespace trireme::nn::fused {
namespace {

// Both directions are operators of libtorch's dispatcher, so that whoever watches operators (the profiler, sharded
// parameters) sees which tensors they use. Settings travel as numbers.

using Numbers = std::vector<double>;

Numbers numbers_of(const BlockSettings& s) {
  return {static_cast<double>(s.kernel),
          static_cast<double>(s.stride),
          static_cast<double>(s.act),
          static_cast<double>(s.project_act),
          static_cast<double>(s.has_expand),
          static_cast<double>(s.has_gate),
          static_cast<double>(s.has_shortcut),
          s.gate_slope,
          s.epsilon};
}

BlockSettings settings_of(at::ArrayRef<double> n) {
  return {.kernel = static_cast<int64_t>(n[0]),
          .stride = static_cast<int64_t>(n[1]),
          .act = static_cast<kernels::Act>(n[2]),
          .project_act = static_cast<kernels::Act>(n[3]),
          .has_expand = n[4] != 0,
          .has_gate = n[5] != 0,
          .has_shortcut = n[6] != 0,
          .gate_slope = n[7],
          .epsilon = n[8]};
}

std::vector<at::Tensor> block_forward_operator(const at::Tensor& x, at::TensorList parameters,
                                               at::ArrayRef<double> numbers) {
  const BlockSettings settings = settings_of(numbers);
  BlockState state;
  std::vector<at::Tensor> results = {
      block_forward(x, BlockParameters::from_list(settings, parameters), settings, state)};
  for (at::Tensor& tensor : state.list()) results.push_back(std::move(tensor));
  return results;
}

std::vector<at::Tensor> block_backward_operator(const at::Tensor& dy, const at::Tensor& x, at::TensorList parameters,
                                                at::TensorList state, at::ArrayRef<double> numbers) {
  const BlockSettings settings = settings_of(numbers);
  BlockParameters gradients;
  std::vector<at::Tensor> results = {block_backward(dy, x, BlockParameters::from_list(settings, parameters), settings,
                                                    BlockState::from_list(settings, state), gradients)};
  for (at::Tensor& tensor : gradients.list()) results.push_back(std::move(tensor));
  return results;
}

TORCH_LIBRARY_FRAGMENT(trireme, library) {
  library.def("inverted_residual(Tensor x, Tensor[] parameters, float[] settings) -> Tensor[]");
  library.def(
      "inverted_residual_backward(Tensor dy, Tensor x, Tensor[] parameters, Tensor[] state, float[] settings) -> "
      "Tensor[]");
  library.impl("inverted_residual", c10::DispatchKey::CPU, TORCH_FN(block_forward_operator));
  library.impl("inverted_residual_backward", c10::DispatchKey::CPU, TORCH_FN(block_backward_operator));
}

template <typename Signature>
auto operator_named(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
}

std::vector<at::Tensor> call_forward(const at::Tensor& x, at::TensorList parameters, const Numbers& numbers) {
  static const auto forward = operator_named<decltype(block_forward_operator)>("trireme::inverted_residual");
  const at::AutoDispatchBelowADInplaceOrView below;
  return forward.call(x, parameters, numbers);
}

std::vector<at::Tensor> call_backward(const at::Tensor& dy, const at::Tensor& x, at::TensorList parameters,
                                      at::TensorList state, const Numbers& numbers) {
  static const auto backward = operator_named<decltype(block_backward_operator)>("trireme::inverted_residual_backward");
  const at::AutoDispatchBelowADInplaceOrView below;
  return backward.call(dy, x, parameters, state, numbers);
}

/// Saved: x, the parameters, the state.
class BlockFunction : public torch::autograd::Function<BlockFunction> {
 public:
  // Returns y and the three statistics, which have no gradient.
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* context, const torch::Tensor& x,
                                                at::TensorList parameters, const Numbers& numbers) {
    const std::vector<at::Tensor> results = call_forward(x, parameters, numbers);
    torch::autograd::variable_list saved = {x};
    saved.insert(saved.end(), parameters.begin(), parameters.end());
    saved.insert(saved.end(), results.begin() + 1, results.end());
    context->save_for_backward(std::move(saved));
    context->saved_data["numbers"] = numbers;
    context->saved_data["parameters"] = static_cast<int64_t>(parameters.size());
    const BlockState state =
        BlockState::from_list(settings_of(numbers), at::TensorList(results).slice(1, results.size() - 1));
    torch::autograd::variable_list outputs = {results[0], state.depthwise_norm, state.project_norm};
    if (state.expand_norm.defined()) outputs.push_back(state.expand_norm);
    context->mark_non_differentiable({outputs.begin() + 1, outputs.end()});
    return outputs;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& outputs) {
    refuse_second_derivative();
    const torch::autograd::variable_list saved = context->get_saved_variables();
    const auto parameters = static_cast<size_t>(context->saved_data["parameters"].toInt());
    const at::TensorList all(saved);
    torch::autograd::variable_list gradients =
        call_backward(outputs[0].contiguous(at::MemoryFormat::ChannelsLast), saved[0], all.slice(1, parameters),
                      all.slice(1 + parameters), context->saved_data["numbers"].toDoubleVector());
    gradients.emplace_back();  // of the numbers
    return gradients;
  }
};

/// Of clamp(slope * x + 1/2, 0, 1); 0 for a gate of another form.
double gate_slope(Activation gate) {
  if (gate == Activation::hardsigmoid) return 1.0 / 6;
  return gate == Activation::hardsigmoid_fifth ? 1.0 / 5 : 0;
}

bool can_fuse_unit(const ConvBnUnit& unit, double epsilon) {
  return can_fuse_norm(*unit.bn(), unit.activation()) && !norm_peers(unit.bn()->weight) &&
         unit.bn()->options.eps() == epsilon && unit.conv()->weight.is_contiguous() && !unit.conv()->bias.defined();
}

/// A convolution of `kernel` x `kernel` whose padding keeps the size at stride 1: the only one that the kernels know.
bool is_plain(const ConvBnUnit& unit, int64_t kernel) {
  const auto& options = unit.conv()->options;
  const auto* padding = std::get_if<torch::ExpandingArray<2>>(&options.padding());
  const auto both = [](const torch::ExpandingArray<2>& pair, int64_t value) {
    return pair->at(0) == value && pair->at(1) == value;
  };
  return both(options.kernel_size(), kernel) && padding != nullptr && both(*padding, (kernel - 1) / 2) &&
         both(options.dilation(), 1) && both(options.stride(), options.stride()->at(0)) &&
         std::holds_alternative<torch::enumtype::kZeros>(options.padding_mode());
}

bool is_pointwise(const ConvBnUnit& unit) {
  return is_plain(unit, 1) && unit.conv()->options.groups() == 1 && unit.conv()->options.stride()->at(0) == 1;
}

bool is_depthwise(const ConvBnUnit& unit) {
  const torch::Tensor& weight = unit.conv()->weight;
  const int64_t kernel = weight.size(2);
  return (kernel == 3 || kernel == 5) && is_plain(unit, kernel) && weight.size(1) == 1 &&
         unit.conv()->options.groups() == weight.size(0);
}

/// The numbers of channels fit each other. Where they do not, the layers say so.
bool channels_fit(const InvertedResidual& block, const torch::Tensor& x) {
  const int64_t wide = block.depthwise->conv()->weight.size(0);
  const torch::Tensor& first = block.expand != nullptr ? block.expand->conv()->weight : block.depthwise->conv()->weight;
  const int64_t in = block.expand != nullptr ? first.size(1) : wide;
  return x.size(1) == in && first.size(0) == wide && block.project->conv()->weight.size(1) == wide &&
         (block.squeeze == nullptr || block.squeeze->squeeze()->weight.size(1) == wide);
}

/// The input is added behind the last activation, which must therefore be none.
bool shortcut_fits(const InvertedResidual& block, const torch::Tensor& x) {
  return !block.shortcut ||
         (block.project->activation() == Activation::none && block.project->conv()->weight.size(0) == x.size(1) &&
          block.depthwise->conv()->options.stride()->at(0) == 1);
}

}  // namespace

bool can_fuse(const InvertedResidual& block, const torch::Tensor& x) {
  if (!can_fuse_input(x) || !is_on(Lever::blocks)) return false;
  const ConvBnUnit& filter = *block.depthwise;
  const double epsilon = filter.bn()->options.eps();
  return is_depthwise(filter) && can_fuse_unit(filter, epsilon) && can_fuse_unit(*block.project, epsilon) &&
         is_pointwise(*block.project) && (block.squeeze == nullptr || gate_slope(block.squeeze->gate()) != 0) &&
         (block.expand == nullptr || (can_fuse_unit(*block.expand, epsilon) && is_pointwise(*block.expand) &&
                                      block.expand->activation() == filter.activation())) &&
         channels_fit(block, x) && shortcut_fits(block, x);
}

torch::Tensor inverted_residual(const InvertedResidual& block, const torch::Tensor& x) {
  const auto& convolution = block.depthwise->conv()->options;
  BlockSettings settings{.kernel = convolution.kernel_size()->at(0),
                         .stride = convolution.stride()->at(0),
                         .act = act_of(block.depthwise->activation()),
                         .project_act = act_of(block.project->activation()),
                         .has_expand = block.expand != nullptr,
                         .has_gate = block.squeeze != nullptr,
                         .has_shortcut = block.shortcut,
                         .epsilon = block.depthwise->bn()->options.eps()};
  BlockParameters parameters;
  const auto take = [](const ConvBnUnit& unit, torch::Tensor& weight, torch::Tensor& scale, torch::Tensor& bias) {
    weight = unit.conv()->weight;
    scale = unit.bn()->weight;
    bias = unit.bn()->bias;
  };
  take(*block.depthwise, parameters.depthwise, parameters.depthwise_scale, parameters.depthwise_bias);
  take(*block.project, parameters.project, parameters.project_scale, parameters.project_bias);
  if (block.expand != nullptr) take(*block.expand, parameters.expand, parameters.expand_scale, parameters.expand_bias);
  if (block.squeeze != nullptr) {
    parameters.squeeze = block.squeeze->squeeze()->weight;
    parameters.squeeze_bias = block.squeeze->squeeze()->bias;
    parameters.excite = block.squeeze->excite()->weight;
    parameters.excite_bias = block.squeeze->excite()->bias;
    settings.gate_slope = gate_slope(block.squeeze->gate());
  }
  const torch::autograd::variable_list results =
      BlockFunction::apply(x, at::TensorList(parameters.list()), numbers_of(settings));
  const auto pixels = static_cast<double>(x.size(0) * x.size(2) * x.size(3));
  const auto out_pixels = static_cast<double>(results[0].size(0) * results[0].size(2) * results[0].size(3));
  update_running_statistics(*block.depthwise->bn(), results[1], out_pixels);
  update_running_statistics(*block.project->bn(), results[2], out_pixels);
  if (block.expand != nullptr) update_running_statistics(*block.expand->bn(), results[3], pixels);
  return results[0];
}

}  // namespace trireme::nn::fused
