#include "trireme/data/image/pipeline.h"

#include <array>
#include <optional>
#include <type_traits>

#include "trireme/core/levers.h"
#include "trireme/data/image/jpeg.h"
#include "trireme/data/image/orient.h"
#include "trireme/data/image/partial.h"

namespace trireme::image {
namespace {

constexpr std::array<const char*, std::variant_size_v<Operator>> kNames{
    "DecodeImage",     "RandCropImage",  "RandFlipImage",  "ResizeImage",   "CropImage",
    "RandomCropImage", "PadImage",       "AutoAugment",    "RandAugment",   "TimmAutoAugment",
    "ColorJitter",     "RandomRotation", "NormalizeImage", "RandomErasing", "ToCHWImage"};

template <typename Op>
constexpr bool kOnPixels = std::is_invocable_v<const Op&, Image&, Random&>;

void expect_size(Size size, const char* who) {
  if (size.width < 1 || size.height < 1)
    throw UsageError("{}: size of {}x{}; both must be at least 1", who, size.width, size.height);
}

void expect_share(double value, const char* key) {
  if (!(value >= 0 && value <= 1)) throw UsageError("{}: {}; must be between 0 and 1", key, value);
}

/// What the options of one operator must be; throws UsageError.
struct Check {
  void operator()(const RandCropImage& op) const {
    expect_size(op.size, "RandCropImage");
    if (!(op.scale[0] > 0 && op.scale[0] <= op.scale[1]))
      throw UsageError("RandCropImage.scale: [{}, {}]; must rise and be above 0", op.scale[0], op.scale[1]);
    if (!(op.ratio[0] > 0 && op.ratio[0] <= op.ratio[1]))
      throw UsageError("RandCropImage.ratio: [{}, {}]; must rise and be above 0", op.ratio[0], op.ratio[1]);
  }
  void operator()(const RandFlipImage& op) const {
    if (op.flip_code < -1 || op.flip_code > 1)
      throw UsageError("RandFlipImage.flip_code: {}; must be 1 (left and right), 0 (top and bottom) or -1 (both)",
                       op.flip_code);
  }
  void operator()(const ResizeImage& op) const {
    if (op.resize_short <= 0) expect_size(op.size, "ResizeImage without resize_short");
  }
  void operator()(const CropImage& op) const { expect_size(op.size, "CropImage"); }
  void operator()(const RandomCropImage& op) const { expect_size(op.size, "RandomCropImage"); }
  void operator()(const PadImage& op) const {
    if (op.left < 0 || op.top < 0 || op.right < 0 || op.bottom < 0)
      throw UsageError("PadImage: a border of less than 0 pixels; use CropImage to cut");
  }
  void operator()(const RandAugment& op) const {
    if (op.num_layers < 0) throw UsageError("RandAugment.num_layers: {}; must be at least 0", op.num_layers);
    expect_share(op.magnitude / 10, "RandAugment.magnitude / 10");
  }
  void operator()(const TimmAutoAugment& op) const {
    op.check();
    expect_share(op.prob, "TimmAutoAugment.prob");
  }
  void operator()(const ColorJitter& op) const {
    expect_share(op.prob, "ColorJitter.prob");
    expect_share(op.hue * 2, "ColorJitter.hue * 2");
  }
  void operator()(const RandomRotation& op) const { expect_share(op.prob, "RandomRotation.prob"); }
  void operator()(const NormalizeImage& op) const {
    if (op.channel_num != 3 && op.channel_num != 4)
      throw UsageError("NormalizeImage.channel_num: {}; must be 3 or 4", op.channel_num);
    for (const float std : op.std)
      if (std == 0) throw UsageError("NormalizeImage.std: holds 0, by which nothing can be divided");
  }
  void operator()(const RandomErasing& op) const {
    expect_share(op.EPSILON, "RandomErasing.EPSILON");
    if (!(op.sl >= 0 && op.sl <= op.sh && op.r1 > 0))
      throw UsageError("RandomErasing: sl {}, sh {}, r1 {}; must be 0 <= sl <= sh and r1 above 0", op.sl, op.sh, op.r1);
  }
  template <typename Op>
  void operator()(const Op& /*has no options that could be wrong*/) const {}
};

/// The size behind an operator, when it does not depend on the picture.
struct Follow {
  std::optional<Size> size;

  void operator()(const RandCropImage& op) { size = op.size; }
  void operator()(const CropImage& op) { size = op.size; }
  void operator()(const RandomCropImage& op) { size = op.size; }
  void operator()(const ResizeImage& op) {
    if (op.resize_short <= 0) size = op.size;
    if (size) size = op.target(*size);
  }
  void operator()(const PadImage& op) {
    if (size) size = Size{op.left + size->width + op.right, op.top + size->height + op.bottom};
  }
  template <typename Op>
  void operator()(const Op& /*keeps the size*/) {}
};

Size final_size(const std::vector<Operator>& operators) {
  Follow follow;
  for (const Operator& op : operators) std::visit(follow, op);
  if (!follow.size)
    throw UsageError("transform_ops: the result would be as large as each picture; add CropImage or ResizeImage.size");
  return *follow.size;
}

bool is_pixel_operator(const Operator& op) {
  return std::visit([](const auto& kind) { return kOnPixels<std::decay_t<decltype(kind)>>; }, op);
}

}  // namespace

std::string name_of(const Operator& op) {
  return kNames[op.index()];
}

Transforms::Transforms(std::vector<Operator> operators, TransformsOptions options)
    : operators_(std::move(operators)), options_(std::move(options)) {
  // Asked once: threads that decode must not read the environment, which the program may change.
  if (options_.decoding == Decoding::automatic && !is_on(Lever::scaled_jpeg)) options_.decoding = Decoding::region;
  bool normalized = false;
  for (const Operator& op : operators_) {
    std::visit(Check{}, op);
    if (const auto* decode = std::get_if<DecodeImage>(&op)) {
      if (&op != &operators_.front()) throw UsageError("transform_ops: DecodeImage must be the first, and only once");
      if (decode->to_rgb) continue;  // as decoded
    }
    if (is_pixel_operator(op)) {
      if (normalized) throw UsageError("transform_ops: {} cannot follow NormalizeImage", name_of(op));
      pixel_operators_.push_back(op);
    } else if (const auto* normalize = std::get_if<NormalizeImage>(&op)) {
      if (normalized) throw UsageError("transform_ops: NormalizeImage twice");
      normalize_ = *normalize;
      normalized = true;
    } else if (const auto* erasing = std::get_if<RandomErasing>(&op)) {
      if (!normalized) throw UsageError("transform_ops: RandomErasing must follow NormalizeImage");
      erasings_.push_back(*erasing);
    }
  }
  if (!normalized) throw UsageError("transform_ops: no NormalizeImage; the result must be numbers");
  size_ = final_size(operators_);
}

size_t Transforms::elements() const {
  return static_cast<size_t>(channels()) * static_cast<size_t>(width()) * static_cast<size_t>(height());
}

Transforms Transforms::resized(Size size) const {
  std::vector<Operator> operators = operators_;
  bool found = false;
  for (Operator& op : operators) {
    if (auto* crop = std::get_if<RandCropImage>(&op)) {
      crop->size = size;
      found = true;
    }
  }
  if (!found) throw UsageError("transform_ops: no RandCropImage whose size could change from batch to batch");
  return Transforms(std::move(operators), options_);
}

void Transforms::run_pixels(Image& image, size_t first, Random& random) const {
  for (size_t i = first; i < pixel_operators_.size(); ++i)
    std::visit(
        [&](const auto& op) {
          if constexpr (kOnPixels<std::decay_t<decltype(op)>>) op(image, random);
        },
        pixel_operators_[i]);
}

void Transforms::finish(const Image& image, Random& random, float* out_chw) const {
  normalize(image, normalize_, out_chw);
  for (const RandomErasing& erasing : erasings_) erasing(out_chw, size_, random);
}

size_t Transforms::decode_first(std::span<const char> encoded, const DecodeOptions& limits, Random& random,
                                Image& image) const {
  if (options_.decoding == Decoding::full || pixel_operators_.empty() || !is_jpeg(encoded)) {
    decode(encoded, image, limits);
    return 0;
  }
  JpegReader reader(encoded, limits);
  const int orientation = reader.orientation();
  const auto* crop = std::get_if<RandCropImage>(&pixel_operators_[0]);
  const auto* resize = std::get_if<ResizeImage>(&pixel_operators_[0]);
  const Operator* second = pixel_operators_.size() > 1 ? &pixel_operators_[1] : nullptr;
  const auto* middle = std::get_if<CropImage>(second);
  if (orientation == 1 && crop != nullptr) {
    const Region part = crop->sample(reader.size(), random);
    const auto* flip = std::get_if<RandFlipImage>(second);
    const bool sideways = flip != nullptr && flip->flip_code > 0;
    const bool mirrored = sideways && RandFlipImage::sample(random);
    const bool scaled = options_.decoding != Decoding::region;
    const Region whole{0, 0, crop->size.width, crop->size.height};
    read_resized(reader, {part, crop->size, whole, crop->method, scaled, mirrored}, image);
    return sideways ? 2 : 1;
  }
  if (orientation == 1 && resize != nullptr && middle != nullptr) {
    const Size size = reader.size(), target = resize->target(size);
    const bool scaled = options_.decoding == Decoding::scaled;
    const Region window = middle->region(target);
    read_resized(reader, {{0, 0, size.width, size.height}, target, window, resize->method, scaled}, image);
    return 2;
  }
  reader.read(image);
  orient(image, orientation);
  return 0;
}

void Transforms::run(std::span<const char> encoded, Random& random, float* out_chw,
                     const std::function<bool()>& stop) const {
  thread_local Image image;
  DecodeOptions limits = options_.decode;
  if (stop) limits.stop = stop;
  const size_t done = decode_first(encoded, limits, random, image);
  run_pixels(image, done, random);
  finish(image, random, out_chw);
}

void Transforms::run(Image& image, Random& random, float* out_chw) const {
  run_pixels(image, 0, random);
  finish(image, random, out_chw);
}

}  // namespace trireme::image
