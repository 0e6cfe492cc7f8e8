// One rule for each aten operator. Sizes of pictures are known here, so that rules of rounding, about which the engines
// that read ONNX differ, are settled in numbers.
#include <fmt/ranges.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/torch.h>

#include <algorithm>
#include <numbers>

#include "trireme/deploy/export/lowering.h"

namespace trireme::deploy {
namespace {

using Ints = std::vector<int64_t>;

constexpr int64_t kImageDims = 4;

// --- one in, one out

/// A text as a template's argument.
template <size_t size>
struct Name {
  consteval Name(const char (&from)[size]) { std::copy_n(from, size, text); }  // NOLINT(google-explicit-constructor)
  char text[size] = {};
};

template <Name op>
void same(Lowering& to) {
  to.result(op.text, {to.value(to.node().input(0))});
}

template <Name op>
void along_dim(Lowering& to) {
  to.result(op.text, {to.value("self")}, {{"axis", to.integer("dim")}});
}

void hardsigmoid(Lowering& to) {
  to.result("HardSigmoid", {to.value("self")}, {{"alpha", 1.0F / 6}, {"beta", 0.5F}});
}

void silu(Lowering& to) {
  const std::string x = to.value("self");
  to.result("Mul", {x, to.emit("Sigmoid", {x})});
}

void gelu(Lowering& to) {
  if (torch::jit::toIValue(to.argument("approximate"))->toStringRef() != "none")
    to.refuse("is an approximation; only the exact one is known");
  const std::string x = to.value("self");
  const std::string erf = to.emit("Erf", {to.emit("Mul", {x, to.constant(std::numbers::sqrt2 / 2)})});
  const std::string gate = to.emit("Mul", {to.emit("Add", {erf, to.constant(1.0)}), to.constant(0.5)});
  to.result("Mul", {x, gate});
}

void leaky_relu(Lowering& to) {
  to.result("LeakyRelu", {to.value("self")}, {{"alpha", static_cast<float>(to.number("negative_slope"))}});
}

void relu6(Lowering& to) {
  to.result("Clip", {to.value("self"), to.constant(0.0), to.constant(6.0)});
}

template <Name low, Name high>
void clip(Lowering& to) {
  const auto limit = [&](const char* name) { return to.is_none(name) ? "" : to.constant(to.number(name)); };
  to.result("Clip", {to.value("self"), limit(low.text), limit(high.text)});
}

// --- two in, one out

template <Name op>
void same_of_two(Lowering& to) {
  to.result(op.text, {to.value(to.node().input(0)), to.value(to.node().input(1))});
}

/// add and sub have a factor: self + alpha * other.
template <Name op>
void with_alpha(Lowering& to) {
  const std::string self = to.value("self"), other = to.value("other");
  const double alpha = to.number("alpha");
  to.result(op.text, {self, alpha == 1 ? other : to.emit("Mul", {other, to.constant(alpha)})});
}

void div(Lowering& to) {
  if (to.node().inputs().size() > 2 && !to.is_none("rounding_mode")) to.refuse("rounds; only exact division is known");
  same_of_two<"Div">(to);
}

// --- layers

/// {height, width} -> {height, width, height, width}: before and after.
Ints both_ends(const Ints& padding) {
  Ints all = padding;
  all.insert(all.end(), padding.begin(), padding.end());
  return all;
}

void convolution(Lowering& to) {
  if (to.flag("transposed")) to.refuse("is transposed; only ordinary convolutions are known");
  std::vector<std::string> inputs = {to.value("input"), to.value("weight")};
  if (!to.is_none("bias")) inputs.push_back(to.value("bias"));
  const Ints weight = shape_of(to.argument("weight"));
  const auto each = [&](const char* name) { return for_dimensions(to.ints(name), weight.size() - 2); };
  to.result("Conv", inputs,
            {{"kernel_shape", Ints(weight.begin() + 2, weight.end())},
             {"strides", each("stride")},
             {"pads", both_ends(each("padding"))},
             {"dilations", each("dilation")},
             {"group", to.integer("groups")}});
}

std::string filled_or(Lowering& to, const char* name, double otherwise, int64_t size) {
  return to.is_none(name) ? to.constant(torch::full({size}, otherwise)) : to.value(name);
}

void batch_norm(Lowering& to) {
  if (to.flag("training") || to.is_none("running_mean"))
    to.refuse("normalises by the batch at hand; give it running statistics");
  const int64_t size = shape_of(to.argument("input"))[1];
  to.result("BatchNormalization",
            {to.value("input"), filled_or(to, "weight", 1, size), filled_or(to, "bias", 0, size),
             to.value("running_mean"), to.value("running_var")},
            {{"epsilon", static_cast<float>(to.number("eps"))}});
}

void linear(Lowering& to) {
  const std::string x = to.value("input");
  const bool has_bias = !to.is_none("bias");
  if (shape_of(to.argument("input")).size() == 2) {
    std::vector<std::string> inputs = {x, to.value("weight")};
    if (has_bias) inputs.push_back(to.value("bias"));
    to.result("Gemm", inputs, {{"transB", int64_t{1}}});
    return;
  }
  const std::string turned = to.emit("Transpose", {to.value("weight")}, {{"perm", Ints{1, 0}}});
  if (has_bias)
    to.result("Add", {to.emit("MatMul", {x, turned}), to.value("bias")});
  else
    to.result("MatMul", {x, turned});
}

// --- pooling

struct Window {
  Ints kernel, stride, pads;
};

/// Pooling needs fixed picture sizes, so no pooled dimension may be the number of images.
void require_pictures(const Lowering& to) {
  const torch::jit::Value* input = to.node().input(0);
  if (static_cast<int64_t>(shape_of(input).size()) != kImageDims) to.refuse("is known for batches of pictures only");
  const std::vector<size_t>* dims = to.batch_dims(input);
  if (dims != nullptr && std::any_of(dims->begin(), dims->end(), [](size_t dim) { return dim >= 2; }))
    to.refuse("pools over the images of a batch; leave out ONNX (.onnx = false)");
}

/// Rounding up means windows that begin in the picture and end behind it: padding at that end, said in numbers.
int64_t overhang(int64_t in, int64_t out, int64_t kernel, int64_t stride, int64_t padding) {
  return std::max<int64_t>(padding, (out - 1) * stride + kernel - in - padding);
}

Window window_of(Lowering& to) {
  require_pictures(to);
  const Ints in = shape_of(to.node().input(0)), out = shape_of(to.node().output());
  Window window{to.ints("kernel_size"), to.ints("stride"), to.ints("padding")};
  for (Ints* pair : {&window.kernel, &window.stride, &window.pads})
    if (pair->size() == 1) pair->push_back((*pair)[0]);
  if (window.stride.empty()) window.stride = window.kernel;
  for (size_t i = 0; i < 2; ++i)
    window.pads.push_back(overhang(in[i + 2], out[i + 2], window.kernel[i], window.stride[i], window.pads[i]));
  return window;
}

std::vector<OnnxAttribute> attributes_of(const Window& window) {
  return {{"kernel_shape", window.kernel}, {"strides", window.stride}, {"pads", window.pads}};
}

void max_pool(Lowering& to) {
  std::vector<OnnxAttribute> attributes = attributes_of(window_of(to));
  Ints dilation = to.ints("dilation");
  if (std::any_of(dilation.begin(), dilation.end(), [](int64_t step) { return step != 1; }))
    to.refuse("skips pixels (dilation); that is not known");
  to.result("MaxPool", {to.value("self")}, attributes);
}

void avg_pool(Lowering& to) {
  const Window window = window_of(to);
  const bool pads = std::any_of(window.pads.begin(), window.pads.end(), [](int64_t pad) { return pad != 0; });
  const bool uneven = window.pads[0] != window.pads[2] || window.pads[1] != window.pads[3];
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
  const Ints in = shape_of(to.argument("self")), out = shape_of(to.node().output());
  if (out[2] == 1 && out[3] == 1) return to.result("GlobalAveragePool", {to.value("self")});
  if (in[2] % out[2] != 0 || in[3] % out[3] != 0)
    to.refuse(fmt::format("pools {} x {} to {} x {}, which does not divide", in[2], in[3], out[2], out[3]));
  const Ints kernel = {in[2] / out[2], in[3] / out[3]};
  to.result("AveragePool", {to.value("self")}, {{"kernel_shape", kernel}, {"strides", kernel}});
}

void mean(Lowering& to) {
  if (to.node().inputs().size() < 4 || to.is_none("dim")) to.refuse("is over everything, images included");
  to.result("ReduceMean", {to.value("self")}, {{"axes", to.ints("dim")}, {"keepdims", int64_t{to.flag("keepdim")}}});
}

// --- shapes

/// With the dimension of the batch left free, wherever it is. Other sizes are the traced ones.
void reshape_as_traced(Lowering& to) {
  Ints shape = shape_of(to.node().output());
  const Ints from = shape_of(to.node().input(0));
  const std::vector<size_t>* dims = to.batch_dims(to.node().output());
  if (dims == nullptr)
    to.refuse(
        fmt::format("from {}, is in a network that takes other operators for another number of images; leave "
                    "out ONNX (.onnx = false)",
                    fmt::join(from, " x ")));
  if (dims->size() > 1)
    to.refuse(
        fmt::format("from {}, has {} dimensions that change with the number of images, and only one can stay "
                    "open; write it otherwise, or leave out ONNX (.onnx = false)",
                    fmt::join(from, " x "), dims->size()));
  if (!dims->empty()) shape[dims->front()] = -1;
  to.result("Reshape", {to.value(to.node().input(0)), to.constant(shape)});
}

void flatten(Lowering& to) {
  const int64_t dims = static_cast<int64_t>(shape_of(to.argument("self")).size());
  const int64_t end = to.integer("end_dim");
  if (to.integer("start_dim") == 1 && (end == -1 || end == dims - 1))
    to.result("Flatten", {to.value("self")}, {{"axis", int64_t{1}}});
  else
    reshape_as_traced(to);
}

void permute(Lowering& to) {
  Ints order = to.ints("dims");
  for (int64_t& dim : order)
    if (dim < 0) dim += static_cast<int64_t>(order.size());  // ONNX counts from the front only
  to.result("Transpose", {to.value("self")}, {{"perm", order}});
}

void transpose(Lowering& to) {
  const int64_t dims = static_cast<int64_t>(shape_of(to.argument("self")).size());
  Ints order(static_cast<size_t>(dims));
  for (int64_t i = 0; i < dims; ++i) order[static_cast<size_t>(i)] = i;
  const auto index = [&](const char* name) { return static_cast<size_t>((to.integer(name) + dims) % dims); };
  std::swap(order[index("dim0")], order[index("dim1")]);
  to.result("Transpose", {to.value("self")}, {{"perm", order}});
}

void cat(Lowering& to) {
  std::vector<std::string> parts;
  for (const torch::jit::Value* part : to.argument("tensors")->node()->inputs()) parts.push_back(to.value(part));
  to.result("Concat", parts, {{"axis", to.integer("dim")}});
}

/// torch pads from the last dimension on, before and after; ONNX all befores, then all afters.
void constant_pad(Lowering& to) {
  const Ints pad = to.ints("pad");
  const size_t dims = shape_of(to.argument("self")).size();
  Ints all(2 * dims, 0);
  for (size_t i = 0; i < pad.size() / 2; ++i) {
    all[dims - 1 - i] = pad[2 * i];
    all[2 * dims - 1 - i] = pad[2 * i + 1];
  }
  to.result("Pad", {to.value("self"), to.constant(all), to.constant(to.number("value"))});
}

struct Entry {
  const char* op;
  Rule rule;
};

constexpr Entry kRules[] = {
    {"_convolution", convolution},
    {"abs", same<"Abs">},
    {"adaptive_avg_pool2d", adaptive_avg_pool},
    {"add", with_alpha<"Add">},
    {"avg_pool2d", avg_pool},
    {"batch_norm", batch_norm},
    {"cat", cat},
    {"clamp", clip<"min", "max">},
    {"constant_pad_nd", constant_pad},
    {"div", div},
    {"exp", same<"Exp">},
    {"flatten", flatten},
    {"gelu", gelu},
    {"hardsigmoid", hardsigmoid},
    {"hardswish", same<"HardSwish">},
    {"hardtanh", clip<"min_val", "max_val">},
    {"leaky_relu", leaky_relu},
    {"linear", linear},
    {"log", same<"Log">},
    {"log_softmax", along_dim<"LogSoftmax">},
    {"matmul", same_of_two<"MatMul">},
    {"max_pool2d", max_pool},
    {"mean", mean},
    {"mul", same_of_two<"Mul">},
    {"neg", same<"Neg">},
    {"permute", permute},
    {"relu", same<"Relu">},
    {"relu6", relu6},
    {"reshape", reshape_as_traced},
    {"sigmoid", same<"Sigmoid">},
    {"silu", silu},
    {"softmax", along_dim<"Softmax">},
    {"sqrt", same<"Sqrt">},
    {"squeeze", reshape_as_traced},
    {"sub", with_alpha<"Sub">},
    {"tanh", same<"Tanh">},
    {"transpose", transpose},
    {"unsqueeze", reshape_as_traced},
    {"view", reshape_as_traced},
};

}  // namespace

Rule rule_for(const std::string& op) {
  const auto* found = std::find_if(std::begin(kRules), std::end(kRules), [&](const Entry& e) { return op == e.op; });
  return found == std::end(kRules) ? nullptr : found->rule;
}

std::vector<std::string> lowered_operators() {
  std::vector<std::string> all;
  for (const Entry& entry : kRules) all.emplace_back(entry.op);
  return all;
}

}  // namespace trireme::deploy
