// Rules for what makes dimensions shorter: sums, extremes, norms, the best few.
#include <torch/csrc/jit/ir/constants.h>
#include <torch/torch.h>

#include <cmath>
#include <numeric>

#include "trireme/deploy/export/lowering.h"

namespace trireme::deploy {
namespace reductions {
namespace {

/// Those that are named; without names all.
Ints axes_of(const Lowering& to, const char* name = "dim") {
  const bool all =
      to.is_none(name) || (to.argument(name)->type()->kind() == c10::TypeKind::ListType && to.ints(name).empty());
  if (all) {
    Ints axes(to.rank_of_input());
    std::iota(axes.begin(), axes.end(), int64_t{0});
    return axes;
  }
  const Ints dims = whole_numbers(to.argument(name));
  Ints axes;
  for (const int64_t dim : dims) axes.push_back(static_cast<int64_t>(Lowering::from_front(dim, to.rank_of_input())));
  return axes;
}

int64_t keeps(const Lowering& to) {
  return to.has("keepdim") && to.flag("keepdim") ? 1 : 0;
}

template <Name op>
void reduce(Lowering& to) {
  const OnnxType type = to.type_of(to.output());
  to.result(op.text, {to.value_as("self", type)}, {{"axes", axes_of(to)}, {"keepdims", keeps(to)}});
}

void mean(Lowering& to) {
  if (to.is_none("dim")) to.refuse("is over everything, images included");
  reduce<"ReduceMean">(to);
}

std::string sum_of(Lowering& to, const std::string& x, const Ints& axes, int64_t keepdims) {
  return to.emit("ReduceSum", {x, to.constant(axes)}, {{"keepdims", keepdims}});
}

void sum(Lowering& to) {
  const std::string x = to.value_as("self", to.type_of(to.output()));
  to.result("ReduceSum", {x, to.constant(axes_of(to))}, {{"keepdims", keeps(to)}});
}

// --- extremes

/// max(x), max(x, y), and max(x, dim) with the places.
template <Name reduction, Name of_two, Name place>
void extreme(Lowering& to) {
  const bool two = to.has("other");
  if (two) {
    const OnnxType type = to.type_of(to.output());
    return to.result(of_two.text, {to.value_as("self", type), to.value_as("other", type)});
  }
  reduce<reduction>(to);
  if (to.node().outputs().size() < 2) return;
  to.result(place.text, {to.value("self")}, {{"axis", axes_of(to)[0]}, {"keepdims", keeps(to)}}, 1);
}

void argmax(Lowering& to) {
  if (to.is_none("dim")) to.refuse("is over everything, images included");
  to.result("ArgMax", {to.value("self")}, {{"axis", axes_of(to)[0]}, {"keepdims", keeps(to)}});
}

void topk(Lowering& to) {
  to.results(
      "TopK", {to.value("self"), to.whole(to.argument("k"))},
      {{"axis", axes_of(to)[0]}, {"largest", int64_t{to.flag("largest")}}, {"sorted", int64_t{to.flag("sorted")}}},
      {to.output(0), to.output(1)});
}

// --- norms and deviations

/// norm(x, p, dim) and linalg_vector_norm(x, ord, dim)
template <Name order_name>
void norm(Lowering& to) {
  const double order = to.is_none(order_name.text) ? 2 : to.number(order_name.text);
  const Ints axes = axes_of(to);
  const std::string x = to.value("self");
  const std::vector<OnnxAttribute> attributes = {{"axes", axes}, {"keepdims", keeps(to)}};
  if (order == 2) return to.result("ReduceL2", {x}, attributes);
  if (order == 1) return to.result("ReduceL1", {x}, attributes);
  const std::string size = to.emit("Abs", {x});
  if (std::isinf(order)) return to.result(order > 0 ? "ReduceMax" : "ReduceMin", {size}, attributes);
  if (order == 0) to.refuse("counts what is not zero; that is not known");
  const std::string powers = sum_of(to, to.emit("Pow", {size, to.constant(order)}), axes, keeps(to));
  to.result("Pow", {powers, to.constant(1 / order)});
}

/// 1 / (count - correction), where the count may follow the images.
std::string inverse_count(Lowering& to, const Ints& axes, double correction) {
  const std::string sizes =
      to.emit("Gather", {to.shape(to.argument("self")), to.constant(axes)}, {{"axis", int64_t{0}}});
  const std::string product = to.emit("ReduceProd", {sizes}, {{"axes", Ints{0}}, {"keepdims", int64_t{0}}});
  const std::string count = to.emit("Cast", {product}, {{"to", static_cast<int64_t>(OnnxType::float32)}});
  return to.emit("Reciprocal", {to.emit("Sub", {count, to.constant(correction)})});
}

double correction_of(const Lowering& to) {
  if (to.has("unbiased")) return to.flag("unbiased") ? 1 : 0;
  return to.is_none("correction") ? 1 : to.number("correction");
}

std::string variance_of(Lowering& to) {
  const Ints axes = axes_of(to);
  const std::string x = to.value("self");
  const std::string centred = to.emit("Sub", {x, to.emit("ReduceMean", {x}, {{"axes", axes}})});
  const std::string squares = sum_of(to, to.emit("Mul", {centred, centred}), axes, keeps(to));
  return to.emit("Mul", {squares, inverse_count(to, axes, correction_of(to))});
}

void var(Lowering& to) {
  to.same_as(to.output(), variance_of(to));
}

void deviation(Lowering& to) {
  to.result("Sqrt", {variance_of(to)});
}

constexpr RuleEntry kRules[] = {
    {"amax", reduce<"ReduceMax">},
    {"amin", reduce<"ReduceMin">},
    {"argmax", argmax},
    {"linalg_vector_norm", norm<"ord">},
    {"max", extreme<"ReduceMax", "Max", "ArgMax">},
    {"mean", mean},
    {"min", extreme<"ReduceMin", "Min", "ArgMin">},
    {"norm", norm<"p">},
    {"std", deviation},
    {"sum", sum},
    {"topk", topk},
    {"var", var},
};

}  // namespace
}  // namespace reductions

std::span<const RuleEntry> reduce_rules() {
  return reductions::kRules;
}

}  // namespace trireme::deploy
