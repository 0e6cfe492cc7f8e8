// What the server answers: paths, pictures, errors. Knows no socket, so that all of it is tested without one.
//
//   Service service(predictor, {.max_batch = 8});
//   http::Server server(listen_tcp("127.0.0.1", 8080), {.is_quick = Service::is_quick},
//                       [&](http::Request& request) { return service.handle(request); },
//                       [&](int status, double seconds) { service.metrics().count_request(status, seconds); });
//
//   POST /v1/predict (or /predict)   one picture as it is, or JSON with several
//   GET  /healthz                    200, and 503 once the server was told to stop
//   GET  /metrics                    for Prometheus
//
// Pictures are decoded on the caller's thread, as many at a time as `decode_bytes` allows, which counts their tensors
// until the engine has answered; only the engine's part is gathered into batches. A request with more pictures than a
// batch or the memory holds is answered in parts. An answer is the same whichever batch it was part of. Thread-safe.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/core/clock.h"
#include "trireme/core/error.h"
#include "trireme/deploy/infer/predictor.h"
#include "trireme/deploy/serve/batcher.h"
#include "trireme/deploy/serve/budget.h"
#include "trireme/deploy/serve/http/message.h"
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

class Service {
 public:
  /// `predictor` must outlive it. Runs the engine once on an empty picture, so that a model that cannot work is found
  /// now and the first client does not wait for what engines do the first time. Throws UsageError for a model that does
  /// not say how it reads pictures, TooLittleMemory.
  Service(const infer::Predictor& predictor, const ServiceOptions& options);

  /// Whether handle() answers without waiting for the engine or for memory: /healthz and /metrics, which must say how a
  /// busy server is.
  static bool is_quick(const http::Request& request);
  http::Response handle(http::Request& request);
  Metrics& metrics() { return metrics_; }

 private:
  using Tensor = std::vector<float>;
  struct Picture {
    std::string_view bytes;   // of its file
    size_t decode_bytes = 0;  // that decoding takes
    Tensor tensor{};          // for the engine
    infer::Prediction prediction{};
    const http::Problem* problem = nullptr;
    std::string error{};  // what the problem is
  };
  using Pictures = std::span<Picture>;

  void check_preprocessing() const;
  void check_memory() const;
  size_t tensor_bytes() const { return predictor_.input_elements() * sizeof(float); }
  http::Response predict(http::Request& request);
  PredictRequest read_request(http::Request& request) const;
  http::Response answer(const PredictRequest& request, Deadline deadline, bool single);
  static http::Response refusal(const std::vector<Picture>& pictures, bool single);
  Picture measure(std::string_view bytes);
  Pictures next_part(Pictures rest) const;
  void answer_part(Pictures part, int topk, Deadline deadline);
  void decode(Picture& picture);
  void refuse(Picture& picture, const UsageError& error);
  void rank(Picture& picture, const Tensor& scores, int topk);
  std::vector<Tensor> run_batch(const std::vector<Tensor>& batch);
  std::string prediction_text(const std::vector<Picture>& pictures) const;
  http::Response health(const http::Request& request) const;
  http::Response metrics_page(const http::Request& request) const;

  const infer::Predictor& predictor_;
  const ServiceOptions options_;
  Metrics metrics_;
  Budget memory_;
  Batcher<Tensor, Tensor> batcher_;  // last: its thread uses the others
};

}  // namespace trireme::serve
