// Rules for layers with weights, normalisations and pools. Where the sizes of pictures are known, rules of rounding,
// about which the engines that read ONNX differ, are settled in numbers.
#include <fmt/ranges.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/torch.h>

#include <numeric>

#include "trireme/deploy/export/lowering.h"

namespace trireme::deploy {
namespace layers {
namespace {

constexpr size_t kImageDims = 4;

/// {height, width} -> {height, width, height, width}: before and after.
Ints both_ends(const Ints& padding) {
  Ints all = padding;
  all.insert(all.end(), padding.begin(), padding.end());
  return all;
}

void convolution(Lowering& to) {
  Names inputs = {to.value("input"), to.value("weight")};
  if (!to.is_none("bias")) inputs.push_back(to.value("bias"));
  const Ints weight = shape_of(to.argument("weight"));
  const auto each = [&](const char* name) { return for_dimensions(to.ints(name), weight.size() - 2); };
  std::vector<OnnxAttribute> attributes = {{"kernel_shape", Ints(weight.begin() + 2, weight.end())},
                                           {"strides", each("stride")},
                                           {"pads", both_ends(each("padding"))},
                                           {"dilations", each("dilation")},
                                           {"group", to.integer("groups")}};
  if (to.flag("transposed")) attributes.push_back({"output_padding", each("output_padding")});
  to.result(to.flag("transposed") ? "ConvTranspose" : "Conv", inputs, attributes);
}

void linear(Lowering& to) {
  const std::string x = to.value("input");
  const bool has_bias = !to.is_none("bias");
  if (to.rank_of_input() == 2) {
    Names inputs = {x, to.value("weight")};
    if (has_bias) inputs.push_back(to.value("bias"));
    return to.result("Gemm", inputs, {{"transB", int64_t{1}}});
  }
  const std::string turned = to.emit("Transpose", {to.value("weight")}, {{"perm", Ints{1, 0}}});
  if (has_bias)
    to.result("Add", {to.emit("MatMul", {x, turned}), to.value("bias")});
  else
    to.result("MatMul", {x, turned});
}

void embedding(Lowering& to) {
  to.result("Gather", {to.value("weight"), to.value_as("indices", OnnxType::int64)}, {{"axis", int64_t{0}}});
}

// --- normalisation

std::string filled_or(Lowering& to, const char* name, double otherwise, int64_t size) {
  return to.is_none(name) ? to.constant(torch::full({size}, otherwise)) : to.value(name);
}

OnnxAttribute epsilon(const Lowering& to) {
  return {"epsilon", static_cast<float>(to.number("eps"))};
}

void by_running_statistics(Lowering& to) {
  if (to.is_none("running_mean")) to.refuse("normalises by the batch at hand; give it running statistics");
  const int64_t size = shape_of(to.argument("input"))[1];
  to.result("BatchNormalization",
            {to.value("input"), filled_or(to, "weight", 1, size), filled_or(to, "bias", 0, size),
             to.value("running_mean"), to.value("running_var")},
            {epsilon(to)});
}

void batch_norm(Lowering& to) {
  if (to.flag("training")) to.refuse("normalises by the batch at hand; give it running statistics");
  by_running_statistics(to);
}

void instance_norm(Lowering& to) {
  if (!to.flag("use_input_stats")) return by_running_statistics(to);
  const int64_t size = shape_of(to.argument("input"))[1];
  to.result("InstanceNormalization",
            {to.value("input"), filled_or(to, "weight", 1, size), filled_or(to, "bias", 0, size)}, {epsilon(to)});
}

/// The normalised value times the weight plus the bias, which are given in `shape`.
void scale_and_shift(Lowering& to, std::string normalised, const Ints& shape) {
  const auto given = [&](const char* name) {
    return shape.size() == 1 ? to.value(name) : to.emit("Reshape", {to.value(name), to.constant(shape)});
  };
  if (!to.is_none("weight")) normalised = to.emit("Mul", {normalised, given("weight")});
  if (to.is_none("bias")) return to.same_as(to.output(), normalised);
  to.result("Add", {normalised, given("bias")});
}

/// Over the last dimensions. Opset 14 has no operator for it; engines know this form of it.
void layer_norm(Lowering& to) {
  const Ints shape = to.ints("normalized_shape");
  Ints axes(shape.size());
  std::iota(axes.begin(), axes.end(), -static_cast<int64_t>(axes.size()));
  const std::string x = to.value("input");
  const auto mean = [&](const std::string& of) { return to.emit("ReduceMean", {of}, {{"axes", axes}}); };
  const std::string centred = to.emit("Sub", {x, mean(x)});
  const std::string variance = mean(to.emit("Mul", {centred, centred}));
  const std::string deviation = to.emit("Sqrt", {to.emit("Add", {variance, to.constant(to.number("eps"))})});
  scale_and_shift(to, to.emit("Div", {centred, deviation}), shape.size() == 1 ? Ints{-1} : shape);
}

/// As an instance norm, in which the groups are the channels.
void group_norm(Lowering& to) {
  const auto* input = to.argument("input");
  const int64_t groups = to.integer("num_groups");
  const std::string grouped = to.emit("Reshape", {to.value(input), to.constant(Ints{0, groups, -1})});
  const std::string normal =
      to.emit("InstanceNormalization",
              {grouped, to.constant(torch::ones({groups})), to.constant(torch::zeros({groups}))}, {epsilon(to)});
  Ints column(to.rank_of_input() - 1, 1);
  column[0] = -1;
  scale_and_shift(to, to.emit("Reshape", {normal, to.shape_for_reshape(input)}), column);
}

// --- pools

struct Window {
  Ints kernel, stride, pads;
  bool rounds_up = false;  ///< by the engine, as no size is known
};

void require_pictures(const Lowering& to) {
  if (to.rank_of_input() != kImageDims) to.refuse("is known for batches of pictures only");
}

void require_fixed_pictures(const Lowering& to, const std::string& why) {
  for (const size_t dim : {size_t{2}, size_t{3}}) to.require_fixed(to.node().input(0), dim, why);
}

/// Rounding up means windows that begin in the picture and end behind it: padding at that end, said in numbers.
int64_t overhang(int64_t in, int64_t out, int64_t kernel, int64_t stride, int64_t padding) {
  return std::max<int64_t>(padding, (out - 1) * stride + kernel - in - padding);
}

/// Engines differ in whether a window may begin in the padding at the end; here none does.
bool begins_inside(const Window& window) {
  const auto inside = [&](size_t i) { return window.pads[i] + window.stride[i] <= window.kernel[i]; };
  return inside(0) && inside(1);
}

Window window_of(const Lowering& to) {
  require_pictures(to);
  const auto each = [&](const char* name) { return for_dimensions(to.ints(name), 2); };
  Window window{each("kernel_size"), each("stride"), both_ends(each("padding"))};
  if (window.stride.empty()) window.stride = window.kernel;
  if (!to.flag("ceil_mode")) return window;
  window.rounds_up = begins_inside(window) && (to.is_open(to.node().input(0), 2) || to.is_open(to.node().input(0), 3));
  if (window.rounds_up) return window;
  require_fixed_pictures(to, "rounds sizes up (ceil_mode), and engines differ in how");
  const Ints in = shape_of(to.node().input(0)), out = shape_of(to.output());
  for (size_t i = 0; i < 2; ++i)
    window.pads[i + 2] = overhang(in[i + 2], out[i + 2], window.kernel[i], window.stride[i], window.pads[i]);
  return window;
}

std::vector<OnnxAttribute> attributes_of(const Window& window) {
  return {{"kernel_shape", window.kernel},
          {"strides", window.stride},
          {"pads", window.pads},
          {"ceil_mode", int64_t{window.rounds_up}}};
}

void max_pool(Lowering& to) {
  const std::vector<OnnxAttribute> attributes = attributes_of(window_of(to));
  const Ints dilation = to.ints("dilation");
  if (std::any_of(dilation.begin(), dilation.end(), [](int64_t step) { return step != 1; }))
    to.refuse("skips pixels (dilation); that is not known");
  to.result("MaxPool", {to.value("self")}, attributes);
}

void avg_pool(Lowering& to) {
  const Window window = window_of(to);
  const bool pads = std::any_of(window.pads.begin(), window.pads.end(), [](int64_t pad) { return pad != 0; });
  const bool uneven = window.rounds_up || window.pads[0] != window.pads[2] || window.pads[1] != window.pads[3];
  const bool counts = to.flag("count_include_pad");
  if (pads && uneven && counts && window.pads[0] + window.pads[1] > 0)
    to.refuse("rounds up, pads and counts the padding all at once; set count_include_pad(false)");
  if (!to.is_none("divisor_override")) to.refuse("has a divisor of its own; that is not known");
  std::vector<OnnxAttribute> attributes = attributes_of(window);
  attributes.push_back({"count_include_pad", int64_t{counts && !uneven}});
  to.result("AveragePool", {to.value("self")}, attributes);
}

void adaptive_avg_pool(Lowering& to) {
  require_pictures(to);
  const Ints in = shape_of(to.argument("self")), out = shape_of(to.output());
  if (out[2] == 1 && out[3] == 1) return to.result("GlobalAveragePool", {to.value("self")});
  require_fixed_pictures(to, fmt::format("pools to {} x {}, for which windows must be known", out[2], out[3]));
  if (in[2] % out[2] != 0 || in[3] % out[3] != 0)
    to.refuse(fmt::format("pools {} x {} to {} x {}, which does not divide", in[2], in[3], out[2], out[3]));
  const Ints kernel = {in[2] / out[2], in[3] / out[3]};
  to.result("AveragePool", {to.value("self")}, {{"kernel_shape", kernel}, {"strides", kernel}});
}

constexpr RuleEntry kRules[] = {
    {"_convolution", convolution},
    {"adaptive_avg_pool2d", adaptive_avg_pool},
    {"avg_pool2d", avg_pool},
    {"batch_norm", batch_norm},
    {"embedding", embedding},
    {"group_norm", group_norm},
    {"instance_norm", instance_norm},
    {"layer_norm", layer_norm},
    {"linear", linear},
    {"max_pool2d", max_pool},
};

}  // namespace
}  // namespace layers

std::span<const RuleEntry> layer_rules() {
  return layers::kRules;
}

}  // namespace trireme::deploy
