#include "trireme/deploy/serve/metrics.h"

#include <fmt/core.h>

#include <algorithm>

namespace trireme::serve {
namespace {

std::vector<double> times() {
  return {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30};
}

std::string head(const char* name, const char* type, const char* meaning) {
  return fmt::format("# HELP {0} {2}\n# TYPE {0} {1}\n", name, type, meaning);
}

std::string counter(const char* name, uint64_t value, const char* meaning) {
  return head(name, "counter", meaning) + fmt::format("{} {}\n", name, value);
}

std::string gauge(const char* name, size_t value, const char* meaning) {
  return head(name, "gauge", meaning) + fmt::format("{} {}\n", name, value);
}

}  // namespace

void Histogram::count(double value) {
  const auto bound = std::lower_bound(bounds_.begin(), bounds_.end(), value);
  ++counts_[static_cast<size_t>(bound - bounds_.begin())];
  sum_ += value;
}

std::string Histogram::text(const std::string& name) const {
  std::string text;
  uint64_t total = 0;
  for (size_t i = 0; i < bounds_.size(); ++i)
    text += fmt::format("{}_bucket{{le=\"{}\"}} {}\n", name, bounds_[i], total += counts_[i]);
  total += counts_.back();
  return text + fmt::format("{0}_bucket{{le=\"+Inf\"}} {1}\n{0}_sum {2}\n{0}_count {1}\n", name, total, sum_);
}

Metrics::Metrics() : latency_(times()), batch_size_({1, 2, 4, 8, 16, 32, 64, 128}), batch_seconds_(times()) {}

void Metrics::count_request(int status, double seconds) {
  std::lock_guard lock(mutex_);
  ++requests_[status];
  latency_.count(seconds);
}

void Metrics::count_batch(size_t pictures, double seconds) {
  std::lock_guard lock(mutex_);
  batch_size_.count(static_cast<double>(pictures));
  batch_seconds_.count(seconds);
}

void Metrics::count_refused_picture() {
  std::lock_guard lock(mutex_);
  ++refused_pictures_;
}

void Metrics::count_failed_picture() {
  std::lock_guard lock(mutex_);
  ++failed_pictures_;
}

void Metrics::count_reload(bool all) {
  std::lock_guard lock(mutex_);
  ++(all ? reloads_ : failed_reloads_);
}

std::string Metrics::text(const Gauges& gauges) const {
  std::lock_guard lock(mutex_);
  std::string text = head("trireme_requests_total", "counter", "Requests answered, by HTTP status.");
  for (const auto& [status, count] : requests_)
    text += fmt::format("trireme_requests_total{{status=\"{}\"}} {}\n", status, count);
  text += head("trireme_request_seconds", "histogram", "From the whole request to its answer.");
  text += latency_.text("trireme_request_seconds");
  text += head("trireme_batch_size", "histogram", "Pictures in a batch of the engine.");
  text += batch_size_.text("trireme_batch_size");
  text += head("trireme_batch_seconds", "histogram", "Time of the engine for a batch.");
  text += batch_seconds_.text("trireme_batch_seconds");
  text += counter("trireme_refused_pictures_total", refused_pictures_, "Pictures that could not be read.");
  text += counter("trireme_failed_pictures_total", failed_pictures_, "Pictures whose scores were not finite.");
  text += head("trireme_reloads_total", "counter", "Times that the models were loaded again.");
  text += fmt::format("trireme_reloads_total{{result=\"ok\"}} {}\n", reloads_);
  text += fmt::format("trireme_reloads_total{{result=\"failed\"}} {}\n", failed_reloads_);
  text += gauge("trireme_models", gauges.models, "Models that are served.");
  text += gauge("trireme_queue_depth", gauges.queued, "Pictures that wait for the engine.");
  text += gauge("trireme_in_flight", gauges.in_flight, "Requests that are being answered.");
  text += gauge("trireme_connections", gauges.connections, "Open connections.");
  return text + gauge("trireme_draining", gauges.draining ? 1 : 0, "1 once the server was told to stop.");
}

}  // namespace trireme::serve
