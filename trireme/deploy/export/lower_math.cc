// Rules for what is computed element by element, and for conversions.
#include <torch/csrc/jit/ir/constants.h>
#include <torch/torch.h>

#include <numbers>

#include "trireme/deploy/export/lowering.h"

namespace trireme::deploy {
namespace math {
namespace {

// --- one in, one out

template <Name op>
void same(Lowering& to) {
  to.result(op.text, {to.value(to.node().input(0))});
}

template <Name op>
void along_dim(Lowering& to) {
  to.result(op.text, {to.value_as("self", OnnxType::float32)}, {{"axis", to.integer("dim")}});
}

/// The values are those of the input: only the place in memory or the device may be others.
void unchanged(Lowering& to) {
  to.same_as(to.output(), to.value(to.node().input(0)));
}

/// to(), type_as(): the trace knows what comes out.
void convert(Lowering& to) {
  to.same_as(to.output(), to.value_as(to.node().input(0), to.type_of(to.output())));
}

void hardsigmoid(Lowering& to) {
  to.result("HardSigmoid", {to.value("self")}, {{"alpha", 1.0F / 6}, {"beta", 0.5F}});
}

void silu(Lowering& to) {
  const std::string x = to.value("self");
  to.result("Mul", {x, to.emit("Sigmoid", {x})});
}

/// The argument of the gate: erf(x / sqrt(2)), or tanh(sqrt(2 / pi) (x + 0.044715 x^3)).
std::string gelu_curve(Lowering& to, const std::string& x) {
  const std::string kind = to.text("approximate");
  if (kind == "none") return to.emit("Erf", {to.emit("Mul", {x, to.constant(std::numbers::sqrt2 / 2)})});
  if (kind != "tanh") to.refuse("has an unknown approximation " + kind);
  const std::string cube = to.emit("Mul", {x, to.emit("Mul", {x, x})});
  const std::string sum = to.emit("Add", {x, to.emit("Mul", {cube, to.constant(0.044715)})});
  const double factor = std::numbers::sqrt2 * std::numbers::inv_sqrtpi;
  return to.emit("Tanh", {to.emit("Mul", {sum, to.constant(factor)})});
}

void gelu(Lowering& to) {
  const std::string x = to.value("self");
  const std::string gate = to.emit("Add", {gelu_curve(to, x), to.constant(1.0)});
  to.result("Mul", {x, to.emit("Mul", {gate, to.constant(0.5)})});
}

void leaky_relu(Lowering& to) {
  to.result("LeakyRelu", {to.value("self")}, {{"alpha", static_cast<float>(to.number("negative_slope"))}});
}

void elu(Lowering& to) {
  if (to.number("scale") != 1 || to.number("input_scale") != 1) to.refuse("has a scale; only that of ELU is known");
  to.result("Elu", {to.value("self")}, {{"alpha", static_cast<float>(to.number("alpha"))}});
}

/// A slope for each channel, which is the second dimension.
void prelu(Lowering& to) {
  std::string slope = to.value("weight");
  const size_t rank = to.rank_of_input();
  if (rank > 2) {
    Ints column(rank - 1, 1);
    column[0] = -1;
    slope = to.emit("Reshape", {slope, to.constant(column)});
  }
  to.result("PRelu", {to.value("self"), slope});
}

void relu6(Lowering& to) {
  to.result("Clip", {to.value("self"), to.constant(0.0), to.constant(6.0)});
}

template <Name low, Name high>
void clip(Lowering& to) {
  const OnnxType type = to.type_of(to.output());
  const auto limit = [&](const char* name) { return to.is_none(name) ? "" : to.constant(to.number(name), type); };
  to.result("Clip", {to.value_as("self", type), limit(low.text), limit(high.text)});
}

void rsqrt(Lowering& to) {
  to.result("Reciprocal", {to.emit("Sqrt", {to.value("self")})});
}

// --- two in, one out

bool is_whole(const Lowering& to) {
  return to.output()->type()->kind() == c10::TypeKind::IntType;
}

/// Both in the type of the result. Sizes are whole numbers.
template <Name op>
void arithmetic(Lowering& to) {
  const auto* one = to.node().input(0);
  const auto* other = to.node().input(1);
  if (is_whole(to)) return to.result(op.text, {to.whole(one), to.whole(other)});
  const OnnxType type = to.type_of(to.output());
  to.result(op.text, {to.value_as(one, type), to.value_as(other, type)});
}

/// add and sub have a factor: self + alpha * other.
template <Name op>
void with_alpha(Lowering& to) {
  if (is_whole(to) || to.number("alpha") == 1) return arithmetic<op>(to);
  const OnnxType type = to.type_of(to.output());
  const std::string scaled = to.emit("Mul", {to.value_as("other", type), to.constant(to.number("alpha"), type)});
  to.result(op.text, {to.value_as("self", type), scaled});
}

void div(Lowering& to) {
  if (!to.is_none("rounding_mode")) to.refuse("rounds; only exact division is known");
  arithmetic<"Div">(to);
}

void less_from(Lowering& to) {  // other - alpha * self
  if (to.number("alpha") != 1) to.refuse("has a factor");
  const OnnxType type = to.type_of(to.output());
  to.result("Sub", {to.value_as("other", type), to.value_as("self", type)});
}

/// Both in a type that holds either.
template <Name op>
void comparison(Lowering& to) {
  const auto* one = to.node().input(0);
  const auto* other = to.node().input(1);
  const OnnxType types[] = {to.type_of(one), to.type_of(other)};
  const bool real = types[0] == OnnxType::float32 || types[1] == OnnxType::float32;
  const OnnxType type = real ? OnnxType::float32 : OnnxType::int64;
  to.result(op.text, {to.value_as(one, type), to.value_as(other, type)});
}

void not_equal(Lowering& to) {
  const OnnxType type = OnnxType::float32;
  to.result("Not", {to.emit("Equal", {to.value_as(to.node().input(0), type), to.value_as(to.node().input(1), type)})});
}

template <Name op>
void logic(Lowering& to) {
  Names inputs;
  for (const auto* input : to.node().inputs()) inputs.push_back(to.value_as(input, OnnxType::boolean));
  to.result(op.text, inputs);
}

void where(Lowering& to) {
  if (to.node().inputs().size() != 3) to.refuse("counts what is true; only where(condition, x, y) is known");
  const OnnxType type = to.type_of(to.output());
  to.result("Where",
            {to.value_as("condition", OnnxType::boolean), to.value_as("self", type), to.value_as("other", type)});
}

void masked_fill(Lowering& to) {
  const OnnxType type = to.type_of(to.output());
  to.result("Where", {to.value_as("mask", OnnxType::boolean), to.value_as("value", type), to.value_as("self", type)});
}

constexpr RuleEntry kRules[] = {
    {"abs", same<"Abs">},
    {"add", with_alpha<"Add">},
    {"clamp", clip<"min", "max">},
    {"clamp_max", clip<"", "max">},
    {"clamp_min", clip<"min", "">},
    {"clone", unchanged},
    {"contiguous", unchanged},
    {"cos", same<"Cos">},
    {"div", div},
    {"elu", elu},
    {"eq", comparison<"Equal">},
    {"erf", same<"Erf">},
    {"exp", same<"Exp">},
    {"floordiv", arithmetic<"Div">},
    {"ge", comparison<"GreaterOrEqual">},
    {"gelu", gelu},
    {"gt", comparison<"Greater">},
    {"hardsigmoid", hardsigmoid},
    {"hardswish", same<"HardSwish">},
    {"hardtanh", clip<"min_val", "max_val">},
    {"le", comparison<"LessOrEqual">},
    {"leaky_relu", leaky_relu},
    {"log", same<"Log">},
    {"log_softmax", along_dim<"LogSoftmax">},
    {"logical_and", logic<"And">},
    {"logical_not", logic<"Not">},
    {"logical_or", logic<"Or">},
    {"lt", comparison<"Less">},
    {"masked_fill", masked_fill},
    {"maximum", arithmetic<"Max">},
    {"minimum", arithmetic<"Min">},
    {"mul", arithmetic<"Mul">},
    {"ne", not_equal},
    {"neg", same<"Neg">},
    {"pow", arithmetic<"Pow">},
    {"prelu", prelu},
    {"reciprocal", same<"Reciprocal">},
    {"relu", same<"Relu">},
    {"relu6", relu6},
    {"rsqrt", rsqrt},
    {"rsub", less_from},
    {"sigmoid", same<"Sigmoid">},
    {"silu", silu},
    {"sin", same<"Sin">},
    {"softmax", along_dim<"Softmax">},
    {"sqrt", same<"Sqrt">},
    {"sub", with_alpha<"Sub">},
    {"tanh", same<"Tanh">},
    {"to", convert},
    {"type_as", convert},
    {"where", where},
};

}  // namespace
}  // namespace math

std::span<const RuleEntry> math_rules() {
  return math::kRules;
}

}  // namespace trireme::deploy
