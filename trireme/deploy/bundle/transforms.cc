#include <algorithm>

#include "trireme/config/preprocess/make_transforms.h"
#include "trireme/core/error.h"
#include "trireme/deploy/bundle/description.h"

namespace trireme::bundle {
namespace {

using image::Operator;

bool gives_a_size(const Operator& op) {
  if (const auto* resize = std::get_if<image::ResizeImage>(&op)) return resize->size.width > 0;
  return std::holds_alternative<image::CropImage>(op) || std::holds_alternative<image::RandCropImage>(op) ||
         std::holds_alternative<image::RandomCropImage>(op);
}

/// Sets such as MNIST come in the right size and are trained without an operator for it; a picture from outside is not.
void ensure_a_size(std::vector<Operator>& operators, const Input& input) {
  if (std::any_of(operators.begin(), operators.end(), gives_a_size)) return;
  const auto normalize = std::find_if(operators.begin(), operators.end(), [](const Operator& op) {
    return std::holds_alternative<image::NormalizeImage>(op);
  });
  operators.insert(normalize, image::ResizeImage{.size = {input.width, input.height}});
}

/// A network of one channel gets the grey of three.
bool channels_fit(const image::Transforms& transforms, const Input& input) {
  return transforms.channels() == input.channels || (input.channels == 1 && transforms.channels() == image::kChannels);
}

void check_size(const image::Transforms& transforms, const Description& description) {
  const Input& input = description.input;
  if (transforms.width() == input.width && transforms.height() == input.height && channels_fit(transforms, input))
    return;
  description.transform_ops.fail("they make {}x{}x{} (channels, height, width), but Input.shape wants {}x{}x{}",
                                 transforms.channels(), transforms.height(), transforms.width(), input.channels,
                                 input.height, input.width);
}

}  // namespace

image::Transforms make_transforms(const Description& description) {
  const config::Node& list = description.transform_ops;
  if (list.is_null())
    throw UsageError("{} has no PreProcess.transform_ops: it reads tensors, not pictures", description.model_name);
  std::vector<Operator> operators = preprocess::make_operators(config::read_named_list(list), list);
  ensure_a_size(operators, description.input);
  image::Transforms transforms = preprocess::put_together(std::move(operators), list);
  check_size(transforms, description);
  return transforms;
}

}  // namespace trireme::bundle
