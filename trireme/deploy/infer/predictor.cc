#include "trireme/deploy/infer/predictor.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <future>
#include <numeric>
#include <optional>
#include <thread>

#include "trireme/core/error.h"
#include "trireme/core/workers.h"
#include "trireme/data/image/random.h"

namespace trireme::infer {
namespace {

using Time = std::chrono::steady_clock;

EngineOptions engine_options(const std::filesystem::path& folder, const PredictorOptions& options) {
  return {.folder = folder,
          .kind = options.engine,
          .precision = options.precision,
          .cpu_threads = options.cpu_threads,
          .use_gpu = options.use_gpu,
          .gpu_id = options.gpu_id};
}

void check(const PredictorOptions& options, const bundle::Description& description) {
  if (options.topk < 0) throw UsageError("topk is {}; must be 0 (as the model says) or more", options.topk);
  if (options.decode_threads < 0) throw UsageError("decode_threads is {}; must be 0 or more", options.decode_threads);
  if (!description.output.shapes.empty())
    throw UsageError("{} is not a classifier: {} says Output.shapes; run its files by a program of your own",
                     description.model_name, bundle::kDescriptionFile);
  if (description.output.class_num < 1) throw UsageError("{} has no classes", description.model_name);
  const auto labels = static_cast<int64_t>(description.labels.size());
  if (labels != 0 && labels != description.output.class_num)
    throw UsageError("{} has {} labels for {} classes; name each class once or none", description.model_name, labels,
                     description.output.class_num);
}

int decode_threads(const PredictorOptions& options) {
  if (options.decode_threads > 0) return options.decode_threads;
  return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

/// The grey of three planes, by the weights of JPEG. A picture that is grey stays what it is, to the bit.
void mix_grey(std::span<const float> planes, std::span<float> grey) {
  const size_t size = grey.size();
  for (size_t i = 0; i < size; ++i) {
    const float r = planes[i], g = planes[size + i], b = planes[2 * size + i];
    grey[i] = r == g && g == b ? r : 0.299F * r + 0.587F * g + 0.114F * b;
  }
}

void expect_finite(std::span<const float> scores, Precision precision) {
  const auto wrong = std::find_if_not(scores.begin(), scores.end(), [](float score) { return std::isfinite(score); });
  if (wrong == scores.end()) return;
  throw ScoresError("the network gives {} as the score of class {}; export it again from good weights{}",
                    std::isnan(*wrong) ? "NaN"
                    : *wrong > 0       ? "infinity"
                                       : "-infinity",
                    wrong - scores.begin(), precision == Precision::fp32 ? "" : ", or compute in fp32");
}

/// The classes of the best scores, best first.
std::vector<int> best_of(std::span<const float> scores, int count) {
  std::vector<int> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  const auto end = order.begin() + std::min<std::ptrdiff_t>(count, static_cast<std::ptrdiff_t>(order.size()));
  std::partial_sort(order.begin(), end, order.end(), [&](int a, int b) {
    const float x = scores[static_cast<size_t>(a)], y = scores[static_cast<size_t>(b)];
    return x > y || (x == y && a < b);
  });
  order.erase(end, order.end());
  return order;
}

/// Jobs that work on the caller's variables: none outlives this, even where the next could not be begun.
class Helping {
 public:
  explicit Helping(size_t most) { jobs_.reserve(most); }
  ~Helping() {
    for (const auto& job : jobs_)
      if (job.valid()) job.wait();
  }
  Helping(const Helping&) = delete;
  Helping& operator=(const Helping&) = delete;
  void add(std::future<void> job) { jobs_.push_back(std::move(job)); }
  void finish() {
    for (auto& job : jobs_) job.get();
  }

 private:
  std::vector<std::future<void>> jobs_;
};

}  // namespace

struct Predictor::State {
  State(const bundle::Description& of, std::unique_ptr<Engine> by, const PredictorOptions& given)
      : description(of), engine(std::move(by)), options(given) {
    check(options, description);
    if (!description.transform_ops.is_null()) transforms = bundle::make_transforms(description);
    const int threads = decode_threads(options);
    if (threads > 1) helpers.emplace(threads - 1, "the decoding of pictures");
  }

  size_t classes() const { return static_cast<size_t>(description.output.class_num); }

  bundle::Description description;
  std::unique_ptr<Engine> engine;
  PredictorOptions options;
  std::optional<image::Transforms> transforms;  // none: the model reads tensors only
  mutable std::optional<Workers> helpers;       // of the caller, who decodes too; Workers are thread-safe
};

Predictor::Predictor(const std::filesystem::path& folder, const PredictorOptions& options) {
  const bundle::Description description = bundle::read(folder);
  check(options, description);
  state_ = std::make_unique<State>(description, make_engine(engine_options(folder, options), description), options);
}

Predictor::Predictor(const bundle::Description& description, std::unique_ptr<Engine> engine,
                     const PredictorOptions& options)
    : state_(std::make_unique<State>(description, std::move(engine), options)) {}

Predictor::~Predictor() = default;
Predictor::Predictor(Predictor&&) noexcept = default;
Predictor& Predictor::operator=(Predictor&&) noexcept = default;

Prediction Predictor::predict(std::string_view encoded) const {
  Buffer image(input_elements());
  Buffer found(state_->classes());
  preprocess(encoded, image.view());
  state_->engine->run(image.view(), 1, found.view());
  return rank(found.view());
}

std::vector<Answer> Predictor::predict(std::span<const std::string_view> encoded, Timing* timing) const {
  return predict(prepare(encoded), timing);
}

Prepared Predictor::prepare(std::span<const std::string_view> encoded) const {
  const auto begin = Time::now();
  Prepared batch{.images = Buffer(encoded.size() * input_elements()),
                 .errors = std::vector<std::string>(encoded.size())};
  const auto decode = [&](size_t i) {
    const std::span<float> image = batch.images.part(i, encoded.size());
    try {
      preprocess(encoded[i], image);
    } catch (const std::exception& refused) {  // nothing may leave: others work on the same batch
      batch.errors[i] = refused.what();
      std::fill(image.begin(), image.end(), 0.0F);
    }
  };
  std::atomic<size_t> next{0};
  const auto work = [&] {
    for (size_t i = next++; i < encoded.size(); i = next++) decode(i);
  };
  const size_t helpers = state_->helpers ? static_cast<size_t>(decode_threads(state_->options)) - 1 : 0;
  Helping helping(helpers);
  for (size_t i = 0; i + 1 < encoded.size() && i < helpers; ++i) helping.add(state_->helpers->run(work));
  work();
  helping.finish();
  batch.taken = Time::now() - begin;
  return batch;
}

std::vector<Answer> Predictor::predict(const Prepared& batch, Timing* timing) const {
  const auto begin = Time::now();
  std::vector<Answer> answers(batch.size());
  Buffer found(batch.size() * state_->classes());
  const auto is_good = [](const std::string& error) { return error.empty(); };
  if (std::any_of(batch.errors.begin(), batch.errors.end(), is_good)) scores(batch.images.view(), found.view());
  const auto computed = Time::now();
  for (size_t i = 0; i < answers.size(); ++i) {
    answers[i].error = batch.errors[i];
    if (!answers[i].ok()) continue;
    try {
      answers[i].prediction = rank(found.part(i, answers.size()));
    } catch (const ScoresError& error) {
      answers[i].error = error.what();
    }
  }
  if (timing) *timing = {batch.taken, computed - begin, Time::now() - computed};
  return answers;
}

void Predictor::preprocess(std::string_view encoded, std::span<float> image, const std::function<bool()>& stop) const {
  const std::optional<image::Transforms>& transforms = state_->transforms;
  if (!transforms) bundle::make_transforms(state_->description);  // says why there are none
  if (image.size() != input_elements())
    throw UsageError("a picture becomes {} floats, but there is room for {}", input_elements(), image.size());
  image::Random random(0);  // an operator of chance, if there is one, does the same to every picture
  if (transforms->elements() == input_elements()) return transforms->run(encoded, random, image.data(), stop);
  Buffer planes(transforms->elements());
  transforms->run(encoded, random, planes.data(), stop);
  mix_grey(planes.view(), image);
}

std::vector<float> Predictor::scores(std::span<const float> images) const {
  std::vector<float> found(images.size() / input_elements() * state_->classes());
  scores(images, found);
  return found;
}

void Predictor::scores(std::span<const float> images, std::span<float> scores) const {
  const size_t batch = images.size() / input_elements();
  if (batch == 0 || images.size() % input_elements() != 0)
    throw UsageError("got {} floats, not a multiple of {} ({}x{}x{})", images.size(), input_elements(),
                     input().channels, input().height, input().width);
  if (scores.size() != batch * state_->classes())
    throw UsageError("room for {} scores, but a batch of {} with {} classes has {}", scores.size(), batch,
                     state_->classes(), batch * state_->classes());
  state_->engine->run(images, static_cast<int64_t>(batch), scores);
}

Prediction Predictor::rank(std::span<const float> scores, int wanted) const {
  if (scores.size() != state_->classes())
    throw UsageError("{} scores, but {} has {} classes", scores.size(), model_name(), state_->classes());
  if (wanted < 0) throw UsageError("topk is {}; must be 0 (as the options say) or more", wanted);
  expect_finite(scores, state_->options.precision);
  Prediction best{.class_ids = best_of(scores, wanted > 0 ? wanted : topk())};
  for (const int id : best.class_ids) {
    best.scores.push_back(scores[static_cast<size_t>(id)]);
    if (!labels().empty()) best.label_names.push_back(labels()[static_cast<size_t>(id)]);
  }
  return best;
}

const std::string& Predictor::model_name() const {
  return state_->description.model_name;
}

const bundle::Input& Predictor::input() const {
  return state_->description.input;
}

const bundle::Output& Predictor::output() const {
  return state_->description.output;
}

const std::vector<std::string>& Predictor::labels() const {
  return state_->description.labels;
}

int Predictor::topk() const {
  return state_->options.topk > 0 ? state_->options.topk : state_->description.topk;
}

std::string Predictor::engine_name() const {
  return state_->engine->name();
}

}  // namespace trireme::infer
