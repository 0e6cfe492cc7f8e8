#include "trireme/launch/nodes/meeting.h"

#include <gtest/gtest.h>

#include "trireme/core/error.h"
#include "trireme/core/net.h"
#include "trireme/launch/test_nodes.h"

namespace trireme::launch {
namespace {

using namespace std::chrono_literals;

// rejoin_time() of this request is 40 s.
TEST(Meeting, ANodeThatLostItsJobLooksForItUntilTheGivenDeadline) {
  const UniqueFd nobody_listens = reserve_port("127.0.0.1", 0);
  const Request request{.nodes = 2, .job_id = "j"};
  const Seat seat{.nodes = 2,
                  .node = 1,
                  .address = "127.0.0.1",
                  .meeting = Endpoint{"127.0.0.1", port_of(local_address(nobody_listens.get()))}};
  const auto since = Clock::now();
  EXPECT_THROW(Meeting::with_others(request, seat, example_node("127.0.0.1", 1), Token::random(),
                                    {.attempt = 1, .deadline = Deadline::in(300ms)}),
               PeerError);
  EXPECT_LT(Clock::now() - since, 10s);
}

}  // namespace
}  // namespace trireme::launch
