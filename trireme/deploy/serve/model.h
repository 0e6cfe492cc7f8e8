// One exported model that answers: pictures become tensors, and tensors of several requests one batch of the engine.
//
//   Model model("lenet", infer::Predictor("inference"), options, {&memory, &metrics});
//   std::vector<Picture> pictures = model.answer(images, {.deadline = deadline, .request = &request});
//   for (Picture& picture : pictures) model.rank(picture, 5);
//
// Pictures are decoded on the caller's thread, as many at a time as `memory` allows, which counts their tensors until
// the engine has answered; only the engine's part is gathered into batches. A request with more pictures than a batch
// or the memory holds is answered in parts. An answer is the same whichever batch it was part of. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/core/clock.h"
#include "trireme/core/deadline.h"
#include "trireme/core/error.h"
#include "trireme/core/http/message.h"
#include "trireme/deploy/infer/predictor.h"
#include "trireme/deploy/serve/batcher.h"
#include "trireme/deploy/serve/budget.h"
#include "trireme/deploy/serve/metrics.h"
#include "trireme/deploy/serve/predict_request.h"

namespace trireme::serve {

struct ServiceOptions {
  size_t max_batch = 8;
  Clock::duration batch_wait = Millis(2);
  size_t max_queue = 256;  ///< pictures that wait for the engine
  size_t images_per_request = 64;
  int64_t max_pixels = int64_t{1} << 25;  ///< of a picture
  size_t decode_bytes = size_t{1} << 30;  ///< of the pictures being decoded and the tensors of those that wait
  Clock::duration request_timeout = std::chrono::seconds(30);  ///< from the whole request to its answer
};

/// Too little memory for a single picture. Unlike the other errors at the start this is not the model's fault.
class TooLittleMemory : public UsageError {
 public:
  using UsageError::UsageError;
};

using Tensor = std::vector<float>;

/// A picture on its way from bytes to an answer.
struct Picture {
  std::string_view bytes = {};  ///< of its file
  size_t decode_bytes = 0;      ///< that decoding takes
  Tensor tensor = {};           ///< for the engine
  Tensor scores = {};           ///< of the engine
  infer::Prediction prediction = {};
  const http::Problem* problem = nullptr;
  std::string error = {};  ///< what the problem is
};

/// What all models of a server share.
struct Shared {
  Budget* memory;
  Metrics* metrics;
};

/// Until when, and for whom, something is computed.
struct RequestContext {
  Deadline deadline;
  const http::Request* request;  ///< nothing is begun once its client has left
  bool is_wanted() const { return !request->client_has_left() && !deadline.passed(); }
  /// Throws UnansweredError when it is in vain.
  void expect_wanted() const;
};

class Model {
 public:
  /// Runs the engine once on an empty picture, so that a model that cannot work is found now and the first client does
  /// not wait for what engines do the first time. Throws UsageError for a model that does not say how it reads pictures,
  /// TooLittleMemory.
  Model(std::string name, infer::Predictor predictor, const ServiceOptions& options, const Shared& shared);

  const std::string& name() const { return name_; }
  const infer::Predictor& predictor() const { return predictor_; }
  size_t tensor_bytes() const { return predictor_.input_elements() * sizeof(float); }
  /// Pictures that wait for the engine.
  size_t waiting() const { return batcher_.waiting(); }
  /// The engine neither computes nor has something to compute: the destructor waits for nothing.
  bool is_idle() const { return batcher_.is_idle(); }

  /// One for each image, in their order, with its scores or its problem. Throws UnansweredError, or what the engine does.
  std::vector<Picture> answer(std::span<const EncodedImage> images, const RequestContext& context);
  /// Scores for tensors of input_elements() floats each, whose memory the caller has taken. Throws as answer() does.
  std::vector<Tensor> scores(std::vector<Tensor> tensors, const RequestContext& context);
  /// Fills in the prediction, or the problem when scores are not finite. Requires a picture without a problem.
  void rank(Picture& picture, int topk);

 private:
  using Pictures = std::span<Picture>;

  void check_preprocessing() const;
  void check_memory() const;
  Picture measure(const EncodedImage& image);
  Pictures next_part(Pictures rest) const;
  void answer_part(Pictures part, const RequestContext& context);
  void decode(Picture& picture, const RequestContext& context);
  void refuse(Picture& picture, const UsageError& error);
  std::vector<Tensor> run_batch(const std::vector<Tensor>& batch);

  const std::string name_;
  const infer::Predictor predictor_;
  const ServiceOptions options_;
  Budget& memory_;
  Metrics& metrics_;
  Batcher<Tensor, Tensor> batcher_;  // last: its thread uses the others
};

}  // namespace trireme::serve
