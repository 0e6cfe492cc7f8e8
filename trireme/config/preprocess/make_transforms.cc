#include "trireme/config/preprocess/make_transforms.h"

#include <algorithm>
#include <map>
#include <string>

#include "trireme/config/check.h"
#include "trireme/core/error.h"
#include "trireme/core/text.h"

namespace trireme::preprocess {
namespace {

using config::Node;
using image::Operator;

int whole(const Node& params, std::string_view key, int otherwise) {
  return static_cast<int>(config::whole(params, key, otherwise, {.least = -(1 << 24), .most = 1 << 24}));
}

/// 224 or [width, height].
image::Size size(const Node& node) {
  if (!node.is_list()) return {node.as<int>(), node.as<int>()};
  const auto sides = node.as<std::vector<int>>();
  if (sides.size() != 2) node.fail("expected a size or [width, height], got a list of {}", sides.size());
  return {sides[0], sides[1]};
}

/// One number is meant for every channel, as sets of grey pictures have it.
template <typename Number, size_t count>
std::array<Number, count> numbers(const Node& params, std::string_view key, std::array<Number, count> otherwise) {
  const Node node = params.at(key);
  if (node.is_null()) return otherwise;
  auto values = *params.find_list_or_one<double>(key);
  if (values.size() == 1) values.resize(count, values.front());
  if (values.size() != count) node.fail("expected {} numbers, got {}", count, values.size());
  std::transform(values.begin(), values.end(), otherwise.begin(),
                 [](double value) { return static_cast<Number>(value); });
  return otherwise;
}

/// A value by its name, in small letters or capitals.
template <typename Value>
Value named(const Node& params, std::string_view key, Value otherwise,
            const std::vector<std::pair<std::string, Value>>& values) {
  const Node node = params.at(key);
  if (node.is_null()) return otherwise;
  const std::string name = to_lower(node.as<std::string>());
  std::vector<std::string> names;
  for (const auto& [known, value] : values) {
    if (name == known) return value;
    names.push_back(known);
  }
  config::check_choice(node, name, names);
  return otherwise;
}

image::Interpolation interpolation(const Node& params, image::Interpolation otherwise) {
  using enum image::Interpolation;
  return named(params, "interpolation", otherwise,
               {{"nearest", nearest}, {"bilinear", bilinear}, {"bicubic", bicubic}});
}

image::ResizeMethod method(const Node& params) {
  using enum image::Backend;
  return {.interpolation = interpolation(params, image::Interpolation::bilinear),
          .backend = named(params, "backend", cv2, {{"cv2", cv2}, {"pil", pil}})};
}

/// Pictures are decoded as by cv2. pil gives the same pixels, but does not turn them as EXIF says. With to_np False,
/// PaddleClas leaves its backend's order of colours, whatever to_rgb is.
Operator decode(const Node& params) {
  if (params.get("channel_first", false)) params.at("channel_first").fail("is not supported; set it to False");
  const bool pil = named(params, "backend", false, {{"cv2", false}, {"pil", true}});
  if (pil)
    config::warn_ignored(params, "backend", "pictures are turned as their EXIF says, as cv2 does and pil does not");
  const bool to_rgb = params.get("to_rgb", true);
  if (params.get("to_np", true)) return image::DecodeImage{.to_rgb = to_rgb};
  if (to_rgb != pil)
    config::warn_ignored(
        params, "to_np",
        fmt::format("it leaves the colours in the backend's order, {}, as in PaddleClas", pil ? "RGB" : "BGR"));
  return image::DecodeImage{.to_rgb = pil};
}

Operator rand_crop(const Node& params) {
  image::RandCropImage op;
  op.size = size(params.need<Node>("size"));
  op.scale = numbers(params, "scale", op.scale);
  op.ratio = numbers(params, "ratio", op.ratio);
  op.method = method(params);
  return op;
}

Operator rand_flip(const Node& params) {
  return image::RandFlipImage{.flip_code = whole(params, "flip_code", 1)};
}

Operator resize(const Node& params) {
  image::ResizeImage op;
  op.resize_short = whole(params, "resize_short", 0);
  if (params.has("size")) op.size = size(params.at("size"));
  op.method = method(params);
  config::warn_unless(true, params, "return_numpy", "operators have one kind of picture here");
  return op;
}

template <typename Crop>
Operator crop(const Node& params) {
  return Crop{.size = size(params.need<Node>("size"))};
}

Operator pad(const Node& params) {
  const int border = whole(params, "padding", 0);
  const auto fill = static_cast<uint8_t>(config::whole(params, "fill", 0, {.least = 0, .most = 255}));
  return image::PadImage{border, border, border, border, {fill, fill, fill}};
}

/// One without parameters.
template <typename Plain>
Operator plain(const Node& params) {
  for (const auto& [key, value] : params.entries()) config::warn_ignored(params, key, "the operator has no parameters");
  return Plain{};
}

Operator rand_augment(const Node& params) {
  const image::RandAugment usual;
  return image::RandAugment{.num_layers = whole(params, "num_layers", usual.num_layers),
                            .magnitude = params.get("magnitude", usual.magnitude)};
}

Operator timm_augment(const Node& params) {
  image::TimmAutoAugment op;
  op.config_str = params.get("config_str", op.config_str);
  op.prob = params.get("prob", op.prob);
  op.interpolation = interpolation(params, op.interpolation);
  if (const auto sides = params.find_list_or_one<int>("img_size")) {
    if (sides->empty()) params.at("img_size").fail("expected a size or [width, height], got an empty list");
    op.img_size = *std::min_element(sides->begin(), sides->end());
  }
  return op;
}

Operator color_jitter(const Node& params) {
  return image::ColorJitter{.brightness = params.get("brightness", 0.0),
                            .contrast = params.get("contrast", 0.0),
                            .saturation = params.get("saturation", 0.0),
                            .hue = params.get("hue", 0.0),
                            .prob = params.get("prob", 1.0)};
}

Operator rotation(const Node& params) {
  return image::RandomRotation{.degrees = params.need<double>("degrees"),
                               .prob = params.get("prob", 1.0),
                               .interpolation = interpolation(params, image::Interpolation::nearest)};
}

Operator normalize(const Node& params) {
  image::NormalizeImage op;
  op.scale = static_cast<float>(params.get<double>("scale", op.scale));
  op.mean = numbers(params, "mean", op.mean);
  op.std = numbers(params, "std", op.std);
  op.channel_num = whole(params, "channel_num", op.channel_num);
  config::choice(params, "order", "", {"", "hwc", "chw"});  // the numbers are the same: a mean for each channel
  config::warn_unless(false, params, "output_fp16", "images are float32; AMP decides the network's precision");
  return op;
}

Operator erasing(const Node& params) {
  image::RandomErasing op;
  op.EPSILON = params.get("EPSILON", op.EPSILON);
  op.sl = params.get("sl", op.sl);
  op.sh = params.get("sh", op.sh);
  op.r1 = params.get("r1", op.r1);
  op.mean = numbers(params, "mean", op.mean);
  op.attempt = whole(params, "attempt", op.attempt);
  op.use_log_aspect = params.get("use_log_aspect", op.use_log_aspect);
  using enum image::ErasePixels;
  op.mode = named(params, "mode", op.mode, {{"const", constant}, {"rand", random}, {"pixel", pixel}});
  return op;
}

const std::map<std::string, Operator (*)(const Node&)> kMakers = {
    {"DecodeImage", decode},
    {"RandCropImage", rand_crop},
    {"RandFlipImage", rand_flip},
    {"ResizeImage", resize},
    {"CropImage", crop<image::CropImage>},
    {"RandomCropImage", crop<image::RandomCropImage>},
    {"Pad", pad},
    {"AutoAugment", plain<image::AutoAugment>},
    {"RandAugment", rand_augment},
    {"TimmAutoAugment", timm_augment},
    {"ColorJitter", color_jitter},
    {"RandomRotation", rotation},
    {"NormalizeImage", normalize},
    {"RandomErasing", erasing},
    {"ToCHWImage", plain<image::ToCHWImage>},
};

std::vector<std::string> names() {
  std::vector<std::string> all;
  for (const auto& [name, make] : kMakers) all.push_back(name);
  return all;
}

}  // namespace

const Node& place_of(const config::NamedNode& named, const Node& list) {
  return named.params.path().empty() ? list : named.params;
}

std::vector<Operator> make_operators(const std::vector<config::NamedNode>& operators, const Node& list) {
  std::vector<Operator> made;
  for (const config::NamedNode& named : operators) {
    config::check_choice(place_of(named, list), named.name, names());
    made.push_back(kMakers.at(named.name)(named.params));
  }
  return made;
}

image::Transforms put_together(std::vector<Operator> operators, const Node& list) {
  try {
    return image::Transforms(std::move(operators));
  } catch (const UsageError& error) {
    list.fail("{}", error.what());
  }
}

image::Transforms make_transforms(const std::vector<config::NamedNode>& operators, const Node& list) {
  return put_together(make_operators(operators, list), list);
}

}  // namespace trireme::preprocess
