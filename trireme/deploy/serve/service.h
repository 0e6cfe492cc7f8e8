// What the server answers: paths, pictures, errors. Knows no socket, so that all of it is tested without one.
//
//   Service service([&] { return models_in("inference", {}); }, {.max_batch = 8});
//   http::Server server(listen_tcp("127.0.0.1", 8080), {.is_quick = Service::is_quick},
//                       [&](http::Request& request) { return service.handle(request); },
//                       [&](int status, double seconds) { service.metrics().count_request(status, seconds); });
//
// routes.h lists the paths. Thread-safe.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "trireme/core/http/message.h"
#include "trireme/deploy/serve/infer_request.h"
#include "trireme/deploy/serve/metrics.h"
#include "trireme/deploy/serve/model.h"
#include "trireme/deploy/serve/models.h"
#include "trireme/deploy/serve/predict_request.h"
#include "trireme/deploy/serve/routes.h"

namespace trireme::serve {

class Service {
 public:
  /// Loads the models. Throws what they do (model.h, models.h).
  Service(const Models::Find& find, const ServiceOptions& options);

  /// Whether handle() answers without waiting for the engine or for memory: all but predictions. Such pages must say how
  /// a busy server is.
  static bool is_quick(const http::Request& request);
  http::Response handle(http::Request& request);
  Metrics& metrics() { return metrics_; }
  const Models& models() const { return models_; }
  /// Loads all models again (models.h). One call at a time.
  bool reload();
  /// From now on the server says that it is not ready, and answers as ever: load balancers send their requests elsewhere.
  void retire() { retiring_ = true; }

 private:
  bool is_ready(const http::Request& request) const;
  http::Response answer(const Match& match, http::Request& request);
  std::shared_ptr<Model> model_of(const Match& match) const;
  RequestContext context_of(const http::Request& request) const;
  http::Response unanswered(const http::Request& request, Unanswered reason) const;

  http::Response predict(const Match& match, http::Request& request);
  PredictRequest read_request(http::Request& request) const;
  http::Response infer(const Match& match, http::Request& request);
  std::vector<Picture> infer_tensors(Model& model, const InferRequest& asked, http::Request& request);
  http::Response health(const http::Request& request) const;
  http::Response metrics_page(const http::Request& request) const;

  const ServiceOptions options_;
  Metrics metrics_;
  Budget memory_;
  std::atomic<bool> retiring_{false};
  Models models_;  // last: its models use the others
};

}  // namespace trireme::serve
