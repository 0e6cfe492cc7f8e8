// Rules for parts of tensors: taking them out, and putting them together.
#include <torch/csrc/jit/ir/constants.h>
#include <torch/torch.h>

#include <limits>

#include "trireme/deploy/export/lowering.h"

namespace trireme::deploy {
namespace parts {
namespace {

namespace jit = torch::jit;

constexpr int64_t kEnd = std::numeric_limits<int64_t>::max();

std::string slice_of(Lowering& to, const std::string& x, int64_t dim, const std::string& start,
                     const std::string& end) {
  return to.emit("Slice", {x, start, end, to.constant(Ints{dim})});
}

// --- out

void slice(Lowering& to) {
  const auto bound = [&](const char* name, int64_t otherwise) {
    return to.is_none(name) ? to.constant(Ints{otherwise}) : to.whole(to.argument(name));
  };
  const auto dim = static_cast<int64_t>(to.dim("dim"));
  to.result("Slice", {to.value("self"), bound("start", 0), bound("end", kEnd), to.constant(Ints{dim}),
                      to.constant(Ints{to.integer("step")})});
}

void narrow(Lowering& to) {
  const auto dim = static_cast<int64_t>(to.dim("dim"));
  const std::string start = to.whole(to.argument("start"));
  const std::string end = to.emit("Add", {start, to.whole(to.argument("length"))});
  to.result("Slice", {to.value("self"), start, end, to.constant(Ints{dim})});
}

void select(Lowering& to) {
  const auto dim = static_cast<int64_t>(to.dim("dim"));
  const std::string one = to.emit("Gather", {to.value("self"), to.whole(to.argument("index"))}, {{"axis", dim}});
  to.result("Squeeze", {one, to.constant(Ints{dim})});
}

/// Of an operator that gives a list: the tensors that are taken out of it.
Values unpacked(const Lowering& to) {
  const auto& uses = to.output()->uses();
  if (uses.size() != 1 || uses[0].user->kind() != c10::prim::ListUnpack) to.refuse("gives a list that is used whole");
  const auto parts = uses[0].user->outputs();
  return {parts.begin(), parts.end()};
}

Ints sizes_along(const Lowering& to, const Values& parts, size_t dim) {
  Ints sizes;
  for (const jit::Value* part : parts) {
    to.require_fixed(part, dim, "splits a dimension");
    sizes.push_back(shape_of(part)[dim]);
  }
  return sizes;
}

/// chunk and split: the sizes of the parts are those that were recorded.
void split(Lowering& to) {
  const Values parts = unpacked(to);
  const size_t dim = to.dim("dim");
  to.results("Split", {to.value("self"), to.constant(sizes_along(to, parts, dim))},
             {{"axis", static_cast<int64_t>(dim)}}, parts);
}

void unbind(Lowering& to) {
  const Values parts = unpacked(to);
  const size_t dim = to.dim("dim");
  to.require_fixed(to.argument("self"), dim, "takes a dimension apart");
  const Names slices = to.emit_many("Split", {to.value("self"), to.constant(Ints(parts.size(), 1))},
                                    {{"axis", static_cast<int64_t>(dim)}}, parts.size());
  for (size_t i = 0; i < parts.size(); ++i)
    to.results("Squeeze", {slices[i], to.constant(Ints{static_cast<int64_t>(dim)})}, {}, {parts[i]});
}

// --- together

void cat(Lowering& to) {
  to.result("Concat", to.values("tensors"), {{"axis", to.integer("dim")}});
}

void stack(Lowering& to) {
  const size_t dim = Lowering::from_front(to.integer("dim"), shape_of(to.output()).size());
  const std::string axes = to.constant(Ints{static_cast<int64_t>(dim)});
  Names parts;
  for (const std::string& part : to.values("tensors")) parts.push_back(to.emit("Unsqueeze", {part, axes}));
  to.result("Concat", parts, {{"axis", static_cast<int64_t>(dim)}});
}

/// The element that comes first after the roll, for every size of the dimension.
std::string first_after_roll(Lowering& to, size_t dim, int64_t shift) {
  const auto* self = to.argument("self");
  const auto axis = static_cast<int64_t>(dim);
  if (!to.is_open(self, dim)) {
    const int64_t size = shape_of(self)[dim];
    return to.constant(Ints{(-shift % size + size) % size});
  }
  const std::string size = to.emit("Gather", {to.shape(self), to.constant(Ints{axis})}, {{"axis", int64_t{0}}});
  return to.emit("Mod", {to.constant(Ints{-shift}), size});
}

std::string rolled(Lowering& to, const std::string& x, size_t dim, int64_t shift) {
  const auto axis = static_cast<int64_t>(dim);
  const std::string first = first_after_roll(to, dim, shift);
  const std::string head = slice_of(to, x, axis, first, to.constant(Ints{kEnd}));
  const std::string tail = slice_of(to, x, axis, to.constant(Ints{0}), first);
  return to.emit("Concat", {head, tail}, {{"axis", axis}});
}

void roll(Lowering& to) {
  const Ints shifts = to.ints("shifts");
  const std::vector<size_t> dims = to.dims("dims");
  if (dims.size() != shifts.size()) to.refuse("rolls over all dimensions at once; name them");
  std::string x = to.value("self");
  for (size_t i = 0; i < dims.size(); ++i) x = rolled(to, x, dims[i], shifts[i]);
  to.same_as(to.output(), x);
}

constexpr RuleEntry kRules[] = {
    {"cat", cat},     {"chunk", split}, {"narrow", narrow},          {"roll", roll},   {"select", select},
    {"slice", slice}, {"split", split}, {"split_with_sizes", split}, {"stack", stack}, {"unbind", unbind},
};

}  // namespace
}  // namespace parts

std::span<const RuleEntry> part_rules() {
  return parts::kRules;
}

}  // namespace trireme::deploy
