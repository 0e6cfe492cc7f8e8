// Rules for shapes: other dimensions of the same elements, tensors that are made to a size, resized pictures.
#include <torch/csrc/jit/ir/constants.h>
#include <torch/torch.h>

#include <numeric>

#include "trireme/deploy/export/lowering.h"

namespace trireme::deploy {
namespace shapes {
namespace {

namespace jit = torch::jit;

std::string axes(Lowering& to, const std::vector<size_t>& dims) {
  return to.constant(Ints(dims.begin(), dims.end()));
}

/// The sizes of these dimensions, of which some are open.
std::string sizes(Lowering& to, const jit::Value* of, size_t first, size_t end) {
  Ints dims(end - first);
  std::iota(dims.begin(), dims.end(), static_cast<int64_t>(first));
  return to.emit("Gather", {to.shape(of), to.constant(dims)}, {{"axis", int64_t{0}}});
}

// --- the same elements

void reshape(Lowering& to) {
  to.result("Reshape", {to.value("self"), to.wholes(to.argument("shape"))});
}

void flatten(Lowering& to) {
  const auto* self = to.argument("self");
  const size_t rank = to.rank_of_input();
  const size_t start = to.dim("start_dim"), end = to.dim("end_dim");
  if (start == 1 && end + 1 == rank) return to.result("Flatten", {to.value(self)}, {{"axis", int64_t{1}}});
  if (to.open_dims(to.output()).size() < 2)
    return to.result("Reshape", {to.value(self), to.shape_for_reshape(to.output())});
  Names parts;
  if (start > 0) parts.push_back(sizes(to, self, 0, start));
  parts.push_back(to.constant(Ints{-1}));
  if (end + 1 < rank) parts.push_back(sizes(to, self, end + 1, rank));
  to.result("Reshape", {to.value(self), to.emit("Concat", parts, {{"axis", int64_t{0}}})});
}

/// squeeze() takes out all dimensions of size 1; those of the run that was recorded are those of every run.
void squeeze(Lowering& to) {
  const Ints shape = shape_of(to.argument("self"));
  std::vector<size_t> dims;
  if (!to.has("dim")) {
    dims.resize(shape.size());
    std::iota(dims.begin(), dims.end(), size_t{0});
  } else {
    dims = to.dims("dim");
  }
  std::erase_if(dims, [&](size_t dim) { return shape[dim] != 1; });
  if (dims.empty()) return to.same_as(to.output(), to.value("self"));
  to.result("Squeeze", {to.value("self"), axes(to, dims)});
}

void unsqueeze(Lowering& to) {
  const size_t dim = Lowering::from_front(to.integer("dim"), to.rank_of_input() + 1);
  to.result("Unsqueeze", {to.value("self"), axes(to, {dim})});
}

void permute(Lowering& to) {
  const std::vector<size_t> order = to.dims("dims");  // ONNX counts from the front only
  to.result("Transpose", {to.value("self")}, {{"perm", Ints(order.begin(), order.end())}});
}

void swap_dims(Lowering& to, size_t one, size_t other) {
  Ints order(to.rank_of_input());
  std::iota(order.begin(), order.end(), int64_t{0});
  std::swap(order[one], order[other]);
  to.result("Transpose", {to.value("self")}, {{"perm", order}});
}

void transpose(Lowering& to) {
  swap_dims(to, to.dim("dim0"), to.dim("dim1"));
}

void turn(Lowering& to) {
  if (to.rank_of_input() < 2) return to.same_as(to.output(), to.value("self"));
  swap_dims(to, 0, 1);
}

void pixel_shuffle(Lowering& to) {
  if (to.rank_of_input() != 4) to.refuse("is known for batches of pictures only");
  to.result("DepthToSpace", {to.value("self")},
            {{"blocksize", to.integer("upscale_factor")}, {"mode", std::string("CRD")}});
}

// --- more elements

/// torch says -1 for a size that stays, ONNX 1.
void expand(Lowering& to) {
  const jit::Node* list = to.argument("size")->node();
  const Ints numbers = whole_numbers(to.argument("size"));
  const auto kept = [](int64_t size) { return size == -1 ? int64_t{1} : size; };
  if (!numbers.empty()) {
    Ints target;
    std::transform(numbers.begin(), numbers.end(), std::back_inserter(target), kept);
    return to.result("Expand", {to.value("self"), to.constant(target)});
  }
  Names parts;
  for (const jit::Value* item : list->inputs()) {
    const auto number = jit::constant_as<int64_t>(item);
    parts.push_back(number ? to.constant(Ints{kept(*number)}) : to.whole(item));
  }
  to.result("Expand", {to.value("self"), to.emit("Concat", parts, {{"axis", int64_t{0}}})});
}

void expand_as(Lowering& to) {
  to.result("Expand", {to.value("self"), to.shape(to.argument("other"))});
}

void repeat(Lowering& to) {
  const size_t rank = shape_of(to.output()).size(), missing = rank - to.rank_of_input();
  std::string x = to.value("self");
  if (missing > 0) {
    std::vector<size_t> front(missing);
    std::iota(front.begin(), front.end(), size_t{0});
    x = to.emit("Unsqueeze", {x, axes(to, front)});
  }
  to.result("Tile", {x, to.wholes(to.argument("repeats"))});
}

/// torch pads from the last dimension on, before and after; ONNX all befores, then all afters.
void constant_pad(Lowering& to) {
  const Ints pad = to.ints("pad");
  const size_t dims = to.rank_of_input();
  Ints all(2 * dims, 0);
  for (size_t i = 0; i < pad.size() / 2; ++i) {
    all[dims - 1 - i] = pad[2 * i];
    all[2 * dims - 1 - i] = pad[2 * i + 1];
  }
  const OnnxType type = to.type_of(to.output());
  to.result("Pad", {to.value("self"), to.constant(all), to.constant(to.number("value"), type)});
}

void filled(Lowering& to, double number, const std::string& shape) {
  to.result("Expand", {to.constant(number, to.type_of(to.output())), shape});
}

template <int number>
void filled_with(Lowering& to) {
  filled(to, number, to.wholes(to.argument("size")));
}

template <int number>
void filled_like(Lowering& to) {
  filled(to, number, to.shape(to.argument("self")));
}

/// C++ writes 1 - x as empty_like(x).fill_(1) - x, which is recorded as full_like.
void full_like(Lowering& to) {
  filled(to, to.number("fill_value"), to.shape(to.argument("self")));
}

void full(Lowering& to) {
  filled(to, to.number("fill_value"), to.wholes(to.argument("size")));
}

void arange(Lowering& to) {
  const OnnxType type = to.type_of(to.output());
  const auto scalar = [&](const char* name, double otherwise) {
    if (!to.has(name)) return to.constant(otherwise, type);
    const jit::Value* of = to.argument(name);
    if (jit::toIValue(of)) return to.value_as(of, type);
    const std::string number = to.emit("Squeeze", {to.whole(of)});
    return type == OnnxType::int64 ? number : to.emit("Cast", {number}, {{"to", static_cast<int64_t>(type)}});
  };
  const std::string start = scalar("start", 0), end = scalar("end", 0), step = scalar("step", 1);
  to.result("Range", {start, end, step});
}

void size(Lowering& to) {
  const auto dim = static_cast<int64_t>(to.dim("dim"));
  to.result("Gather", {to.emit("Shape", {to.value("self")}), to.constant(Ints{dim})}, {{"axis", int64_t{0}}});
}

// --- resized pictures

/// One for each dimension; none where a size is given.
std::vector<float> factors_of(const Lowering& to) {
  if (!to.is_none("scale_factors")) {
    std::vector<float> factors = {1, 1};
    for (const double factor : to.numbers("scale_factors")) factors.push_back(static_cast<float>(factor));
    return factors;
  }
  if (to.is_none("scales_h") || to.is_none("scales_w")) return {};
  return {1, 1, static_cast<float>(to.number("scales_h")), static_cast<float>(to.number("scales_w"))};
}

void resize(Lowering& to, const std::vector<OnnxAttribute>& attributes) {
  const auto* pictures = to.node().input(0);
  const std::vector<float> factors = factors_of(to);
  if (!factors.empty())
    return to.result("Resize", {to.value(pictures), "", to.constant(torch::tensor(factors))}, attributes);
  const Names parts = {sizes(to, pictures, 0, 2), to.wholes(to.argument("output_size"))};
  to.result("Resize", {to.value(pictures), "", "", to.emit("Concat", parts, {{"axis", int64_t{0}}})}, attributes);
}

void nearest(Lowering& to) {
  resize(to, {{"mode", std::string("nearest")},
              {"coordinate_transformation_mode", std::string("asymmetric")},
              {"nearest_mode", std::string("floor")}});
}

std::string corners(const Lowering& to) {
  return to.flag("align_corners") ? "align_corners" : "half_pixel";
}

void bilinear(Lowering& to) {
  resize(to, {{"mode", std::string("linear")}, {"coordinate_transformation_mode", corners(to)}});
}

void bicubic(Lowering& to) {
  resize(to,
         {{"mode", std::string("cubic")}, {"coordinate_transformation_mode", corners(to)}, {"cubic_coeff_a", -0.75F}});
}

constexpr RuleEntry kRules[] = {
    {"arange", arange},
    {"constant_pad_nd", constant_pad},
    {"empty_like", filled_like<0>},
    {"expand", expand},
    {"expand_as", expand_as},
    {"flatten", flatten},
    {"full", full},
    {"full_like", full_like},
    {"ones", filled_with<1>},
    {"ones_like", filled_like<1>},
    {"permute", permute},
    {"pixel_shuffle", pixel_shuffle},
    {"repeat", repeat},
    {"reshape", reshape},
    {"size", size},
    {"squeeze", squeeze},
    {"t", turn},
    {"transpose", transpose},
    {"unsqueeze", unsqueeze},
    {"upsample_bicubic2d", bicubic},
    {"upsample_bilinear2d", bilinear},
    {"upsample_nearest2d", nearest},
    {"zeros", filled_with<0>},
    {"zeros_like", filled_like<0>},
};

}  // namespace
}  // namespace shapes

std::span<const RuleEntry> shape_rules() {
  return shapes::kRules;
}

}  // namespace trireme::deploy
