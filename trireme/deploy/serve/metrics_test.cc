#include "trireme/deploy/serve/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trireme::serve {
namespace {

using testing::HasSubstr;

TEST(Metrics, CountsByStatusAndTime) {
  Metrics metrics;
  metrics.count_request(200, 0.001);
  metrics.count_request(200, 0.002);
  metrics.count_request(413, 100);
  const std::string text = metrics.text({});
  EXPECT_THAT(text, HasSubstr("# TYPE trireme_requests_total counter\n"
                              "trireme_requests_total{status=\"200\"} 2\n"
                              "trireme_requests_total{status=\"413\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("trireme_request_seconds_bucket{le=\"0.001\"} 1\n"
                              "trireme_request_seconds_bucket{le=\"0.0025\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("trireme_request_seconds_bucket{le=\"30\"} 2\n"
                              "trireme_request_seconds_bucket{le=\"+Inf\"} 3\n"
                              "trireme_request_seconds_sum 100.003\n"
                              "trireme_request_seconds_count 3\n"));
}

TEST(Metrics, BatchesAndGauges) {
  Metrics metrics;
  metrics.count_batch(3, 0.01);
  metrics.count_batch(8, 0.02);
  metrics.count_refused_picture();
  metrics.count_failed_picture();
  const std::string text = metrics.text({.queued = 4, .in_flight = 5, .connections = 6, .draining = true});
  EXPECT_THAT(text, HasSubstr("trireme_batch_size_bucket{le=\"4\"} 1\ntrireme_batch_size_bucket{le=\"8\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("trireme_batch_size_sum 11\ntrireme_batch_size_count 2\n"));
  for (const char* line :
       {"trireme_refused_pictures_total 1\n", "trireme_failed_pictures_total 1\n", "trireme_queue_depth 4\n",
        "trireme_in_flight 5\n", "trireme_connections 6\n", "trireme_draining 1\n"})
    EXPECT_THAT(text, HasSubstr(line));
}

}  // namespace
}  // namespace trireme::serve
