// Pictures in, classes out: an exported model as an object.
//
//   const Predictor predictor("inference", {.cpu_threads = 2, .topk = 5});
//   const Prediction best = predictor.predict(bytes_of_a_jpeg);
//   fmt::print("{} {:.2f}\n", best.label_names[0], best.scores[0]);
//
// Links neither libtorch nor OpenVINO: the engine is a plugin, loaded by the constructor (engine.h). No training and no
// communication code comes with it.
//
// Guarantees: a picture's answer does not depend on the others of its batch, whether they are good or bad.
// Thread rule: all methods are const and may be called by several threads at once.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/core/cxx20.h"
#include "trireme/core/error.h"
#include "trireme/deploy/bundle/description.h"
#include "trireme/deploy/infer/buffer.h"
#include "trireme/deploy/infer/engine.h"

namespace trireme::infer {

struct PredictorOptions {
  EngineKind engine = EngineKind::automatic;
  Precision precision = Precision::fp32;
  int cpu_threads = 0;  ///< of the engine; 0: as many as this process may use
  bool use_gpu = false;
  int gpu_id = 0;
  int topk = 0;            ///< classes in an answer; 0: as the model says
  int decode_threads = 0;  ///< that turn the pictures of a batch into tensors; 0: as many as this process may use
};

/// The best classes of one picture, best first; equal scores in the order of the classes.
struct Prediction {
  std::vector<int> class_ids;
  std::vector<float> scores = {};
  std::vector<std::string> label_names = {};  ///< empty when the model has no labels
  bool operator==(const Prediction&) const = default;
};

/// The network gave a score that is NaN or infinite. The picture is not at fault.
class ScoresError : public UsageError {
 public:
  using UsageError::UsageError;
};

/// For one picture of a batch: a prediction, or why there is none (the bytes are not a picture, or scores are not
/// finite).
struct Answer {
  Prediction prediction;
  std::string error;  ///< empty: all went well
  bool ok() const { return error.empty(); }
};

/// Where the time of a call went.
struct Timing {
  std::chrono::nanoseconds preprocess{};
  std::chrono::nanoseconds inference{};
  std::chrono::nanoseconds postprocess{};
};

/// Pictures turned into the network's input: what prepare() makes and predict() reads.
struct Prepared {
  Buffer images;                    ///< size() pictures one after the other; a bad one is zeros
  std::vector<std::string> errors;  ///< for each picture what is wrong with it, or ""
  std::chrono::nanoseconds taken{};
  size_t size() const { return errors.size(); }
};

class Predictor {
 public:
  /// `folder` is what `trireme export` wrote. Throws UsageError for a folder, file or engine that is missing or wrong.
  explicit Predictor(const std::filesystem::path& folder, const PredictorOptions& options = {});
  /// With an engine of yours. UsageError: options out of range, or not one label for each class (none is fine).
  Predictor(const bundle::Description& description, std::unique_ptr<Engine> engine,
            const PredictorOptions& options = {});
  ~Predictor();
  Predictor(Predictor&&) noexcept;
  Predictor& operator=(Predictor&&) noexcept;

  // --- from the bytes of JPEG or PNG files

  /// Throws UsageError when the bytes are not a picture, ScoresError.
  Prediction predict(std::string_view encoded) const;
  /// One answer for each, in their order, computed as one batch.
  std::vector<Answer> predict(std::span<const std::string_view> encoded, Timing* timing = nullptr) const;

  // --- the same in two steps, so that the next batch can be decoded while the engine runs this one

  Prepared prepare(std::span<const std::string_view> encoded) const;
  std::vector<Answer> predict(const Prepared& batch, Timing* timing = nullptr) const;

  // --- the same in single steps, for callers with tensors or batches of their own

  /// One picture into input_elements() floats. `stop` is asked now and then while a JPEG is decoded; true ends it, and it
  /// must not throw. UsageError: the bytes are not a picture, or it was stopped.
  void preprocess(std::string_view encoded, std::span<float> image, const std::function<bool()>& stop = {}) const;
  /// Whole pictures in, class_num() scores for each out. UsageError: not a whole number of pictures.
  std::vector<float> scores(std::span<const float> images) const;
  /// Without memory of its own: `scores` has class_num() floats for each picture.
  void scores(std::span<const float> images, std::span<float> scores) const;
  /// The best of class_num() scores; `topk` 0: as the options say. Throws ScoresError.
  Prediction rank(std::span<const float> scores, int topk = 0) const;

  // --- what it is

  const std::string& model_name() const;
  const bundle::Input& input() const;
  const bundle::Output& output() const;
  const std::vector<std::string>& labels() const;
  size_t input_elements() const { return input().elements(); }
  int64_t class_num() const { return output().class_num; }
  int topk() const;
  std::string engine_name() const;  ///< for people

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace trireme::infer
