// Rules for products of matrices, and attention, which is made of them.
#include <torch/csrc/jit/ir/constants.h>
#include <torch/torch.h>

#include <cmath>
#include <limits>

#include "trireme/deploy/export/lowering.h"

namespace trireme::deploy {
namespace products {
namespace {

void matmul(Lowering& to) {
  to.result("MatMul", {to.value(to.node().input(0)), to.value(to.node().input(1))});
}

std::string times(Lowering& to, const std::string& x, const char* factor) {
  return to.number(factor) == 1 ? x : to.emit("Mul", {x, to.constant(to.number(factor))});
}

/// beta * self + alpha * one @ other
template <Name one, Name other>
void add_product(Lowering& to) {
  const std::string product = to.emit("MatMul", {to.value(one.text), to.value(other.text)});
  to.result("Add", {times(to, to.value("self"), "beta"), times(to, product, "alpha")});
}

/// torch allows blanks, ONNX does not.
void einsum(Lowering& to) {
  std::string equation = to.text("equation");
  std::erase(equation, ' ');
  to.result("Einsum", to.values("tensors"), {{"equation", equation}});
}

// --- attention

/// What is added to the scores: 0 where a position is seen, -infinity where it is not.
torch::Tensor causal_mask(int64_t targets, int64_t sources) {
  return torch::full({targets, sources}, -std::numeric_limits<float>::infinity()).triu(1);
}

std::string mask_of(Lowering& to, const std::string& scores) {
  if (to.flag("is_causal")) {
    const auto* query = to.argument("query");
    const auto* key = to.argument("key");
    const size_t dim = to.rank_of_input() - 2;
    to.require_fixed(query, dim, "masks what comes later (is_causal)");
    to.require_fixed(key, dim, "masks what comes later (is_causal)");
    return to.emit("Add", {scores, to.constant(causal_mask(shape_of(query)[dim], shape_of(key)[dim]))});
  }
  if (to.is_none("attn_mask")) return scores;
  const auto* mask = to.argument("attn_mask");
  if (to.type_of(mask) != OnnxType::boolean) return to.emit("Add", {scores, to.value(mask)});
  return to.emit("Where", {to.value(mask), scores, to.constant(-std::numeric_limits<double>::infinity())});
}

void attention(Lowering& to) {
  if (to.number("dropout_p") != 0) to.refuse("drops out at random; give it 0 in evaluation");
  if (to.has("enable_gqa") && to.flag("enable_gqa")) to.refuse("groups its queries (enable_gqa); that is not known");
  const Ints query = shape_of(to.argument("query"));
  const auto width = static_cast<double>(query.back());
  const double scale = to.is_none("scale") ? 1 / std::sqrt(width) : to.number("scale");
  Ints order;
  for (size_t i = 0; i < query.size(); ++i) order.push_back(static_cast<int64_t>(i));
  std::swap(order[order.size() - 1], order[order.size() - 2]);
  const std::string keys = to.emit("Transpose", {to.value("key")}, {{"perm", order}});
  const std::string scaled = to.emit("Mul", {to.value("query"), to.constant(scale)});
  const std::string scores = mask_of(to, to.emit("MatMul", {scaled, keys}));
  to.result("MatMul", {to.emit("Softmax", {scores}, {{"axis", int64_t{-1}}}), to.value("value")});
}

constexpr RuleEntry kRules[] = {
    {"addmm", add_product<"mat1", "mat2">},
    {"baddbmm", add_product<"batch1", "batch2">},
    {"bmm", matmul},
    {"einsum", einsum},
    {"matmul", matmul},
    {"scaled_dot_product_attention", attention},
};

}  // namespace
}  // namespace products

std::span<const RuleEntry> product_rules() {
  return products::kRules;
}

}  // namespace trireme::deploy
