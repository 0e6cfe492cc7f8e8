#include "trireme/deploy/serve/model.h"

#include <algorithm>
#include <chrono>
#include <future>

#include "trireme/core/log.h"
#include "trireme/core/text.h"
#include "trireme/data/image/decode.h"

namespace trireme::serve {
namespace {

// A thread that decodes keeps the memory of its largest picture for the next one. Beyond this the picture gets a thread
// of its own, which ends with it: then the budget is all there is, and starting a thread is little beside the decoding.
constexpr size_t kKeptBytes = size_t{4} << 20;

/// What decoding takes at the most, a pixel: its three colours; and of a JPEG, whose colours and details may come one
/// after the other, the two bytes of each of up to four components that libjpeg keeps until the last has come.
constexpr size_t kPngBytesPerPixel = 3, kJpegBytesPerPixel = 3 + 2 * 4;

size_t bytes_per_pixel(std::string_view image) {
  return image.starts_with("\x89PNG") ? kPngBytesPerPixel : kJpegBytesPerPixel;
}

/// Of a picture: decoding, and then resizing until the shorter side is about as long as the network's input: of a
/// picture that is a thin line this makes far more than it was. As much as the input has bytes, stretched to the
/// picture's shape, is enough for every usual margin. Looks at the header only. Throws RequestError, and ImageError for
/// bytes that are not a picture.
size_t bytes_to_decode(std::string_view image, size_t tensor_bytes, const ServiceOptions& options) {
  const image::Size size = image::read_size(image, {.max_pixels = INT64_MAX});
  const auto [narrow, wide] = std::minmax(size.width, size.height);
  const int64_t pixels = int64_t{narrow} * wide;
  if (pixels > options.max_pixels)
    throw RequestError(problem("image_too_large"), "{}x{} are {} pixels; the limit is {} (--max-pixels)", size.width,
                       size.height, pixels, options.max_pixels);
  const size_t stretched = tensor_bytes * static_cast<size_t>(wide) / static_cast<size_t>(narrow);
  const size_t bytes = static_cast<size_t>(pixels) * bytes_per_pixel(image) + stretched;
  if (bytes + tensor_bytes > options.decode_bytes)
    throw RequestError(problem("image_too_large"),
                       "{}x{} pixels may take {} bytes to decode and resize; the limit is {} (--decode-memory)",
                       size.width, size.height, bytes + tensor_bytes, options.decode_bytes);
  return bytes;
}

}  // namespace

void RequestContext::expect_wanted() const {
  if (request->client_has_left()) throw UnansweredError(Unanswered::client_left);
  if (deadline.passed()) throw UnansweredError(Unanswered::timed_out);
}

Model::Model(std::string name, infer::Predictor predictor, const ServiceOptions& options, const Shared& shared)
    : name_(std::move(name)),
      predictor_(std::move(predictor)),
      options_(options),
      memory_(*shared.memory),
      metrics_(*shared.metrics),
      batcher_({.max_batch = options.max_batch, .max_wait = options.batch_wait, .max_queue = options.max_queue},
               [this](const std::vector<Tensor>& batch) { return run_batch(batch); }) {
  check_preprocessing();
  check_memory();
  predictor_.scores(Tensor(predictor_.input_elements()));
}

/// An empty input must fail to decode: this checks the preprocessing without running the network.
void Model::check_preprocessing() const {
  Tensor tensor(predictor_.input_elements());
  try {
    predictor_.preprocess("", tensor);
  } catch (const image::ImageError&) {
  }
}

/// A picture of just the size that the network wants must be possible, a JPEG too.
void Model::check_memory() const {
  const int64_t pixels = int64_t{predictor_.input().height} * predictor_.input().width;
  const size_t least = kJpegBytesPerPixel * static_cast<size_t>(pixels) + 2 * tensor_bytes();
  if (options_.decode_bytes < least)
    throw TooLittleMemory(
        "--decode-memory {} is too little: a single picture of {} pixels, as {} wants it, may take {} bytes",
        options_.decode_bytes, pixels, name_, least);
}

std::vector<Picture> Model::answer(std::span<const EncodedImage> images, const RequestContext& context) {
  std::vector<Picture> pictures;
  pictures.reserve(images.size());
  for (const EncodedImage& image : images) pictures.push_back(measure(image));
  for (Pictures rest = pictures; !rest.empty();) {
    const Pictures part = next_part(rest);
    answer_part(part, context);
    rest = rest.subspan(part.size());
  }
  return pictures;
}

Picture Model::measure(const EncodedImage& image) {
  Picture picture{.bytes = image.bytes};
  try {
    if (!image.error.empty()) throw RequestError(problem("bad_base64"), "{}", image.error);
    picture.decode_bytes = bytes_to_decode(image.bytes, tensor_bytes(), options_);
  } catch (const UsageError& error) {
    refuse(picture, error);
  }
  return picture;
}

/// As many as a batch and the memory hold; at least one.
Model::Pictures Model::next_part(Pictures rest) const {
  size_t count = 0, decode_bytes = 0;
  while (count < std::min(rest.size(), options_.max_batch)) {
    decode_bytes = std::max(decode_bytes, rest[count].decode_bytes);
    if (count > 0 && (count + 1) * tensor_bytes() + decode_bytes > memory_.total()) break;
    ++count;
  }
  return rest.first(count);
}

/// Takes all its memory at once, as Budget demands: that of the tensors, and of one picture at a time being decoded.
void Model::answer_part(Pictures part, const RequestContext& context) {
  size_t decode_bytes = 0;
  for (const Picture& picture : part) decode_bytes = std::max(decode_bytes, picture.decode_bytes);
  if (decode_bytes == 0) return;  // there is nothing good in it
  context.expect_wanted();
  auto share = memory_.take(part.size() * tensor_bytes() + decode_bytes, context.deadline);
  if (!share) throw UnansweredError(Unanswered::timed_out);
  std::vector<Picture*> good;
  std::vector<Tensor> tensors;
  for (Picture& picture : part) {
    context.expect_wanted();
    if (!picture.problem) decode(picture, context);
    if (picture.problem) continue;
    good.push_back(&picture);
    tensors.push_back(std::move(picture.tensor));
  }
  share->keep(tensors.size() * tensor_bytes());
  std::vector<Tensor> found = scores(std::move(tensors), context);
  for (size_t i = 0; i < good.size(); ++i) good[i]->scores = std::move(found[i]);
}

std::vector<Tensor> Model::scores(std::vector<Tensor> tensors, const RequestContext& context) {
  context.expect_wanted();
  return batcher_.run(std::move(tensors), context.deadline);
}

void Model::decode(Picture& picture, const RequestContext& context) {
  try {
    Tensor tensor(predictor_.input_elements());
    const auto in_vain = [&] { return !context.is_wanted(); };
    const auto preprocess = [&] { predictor_.preprocess(picture.bytes, tensor, in_vain); };
    if (picture.decode_bytes > kKeptBytes)
      std::async(std::launch::async, preprocess).get();
    else
      preprocess();
    picture.tensor = std::move(tensor);
  } catch (const UsageError& error) {
    context.expect_wanted();  // else it was stopped, and the picture is not at fault
    refuse(picture, error);
  }
}

void Model::refuse(Picture& picture, const UsageError& error) {
  const auto* own = dynamic_cast<const RequestError*>(&error);
  picture.problem = own ? &own->problem() : &problem("bad_image");
  picture.error = error.what();
  metrics_.count_refused_picture();
}

void Model::rank(Picture& picture, int topk) {
  try {
    picture.prediction = predictor_.rank(picture.scores, topk);
  } catch (const infer::ScoresError& error) {
    picture.problem = &problem("bad_scores");
    picture.error = error.what();
    metrics_.count_failed_picture();
    log_error("[serve] {}: {}", printable(name_), error.what());
  }
}

std::vector<Tensor> Model::run_batch(const std::vector<Tensor>& batch) {
  const auto begin = Clock::now();
  infer::Buffer images(batch.size() * predictor_.input_elements());
  float* to = images.data();
  for (const Tensor& tensor : batch) to = std::copy(tensor.begin(), tensor.end(), to);
  const std::vector<float> scores = predictor_.scores(images.view());
  const auto classes = static_cast<std::ptrdiff_t>(predictor_.class_num());
  std::vector<Tensor> result;
  for (auto from = scores.begin(); from != scores.end(); from += classes) result.emplace_back(from, from + classes);
  metrics_.count_batch(batch.size(), std::chrono::duration<double>(Clock::now() - begin).count());
  return result;
}

}  // namespace trireme::serve
