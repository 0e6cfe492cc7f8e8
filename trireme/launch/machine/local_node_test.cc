#include "trireme/launch/machine/local_node.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>

namespace trireme::launch {
namespace {

TEST(LocalNode, TakesAllTheOpenFilesThatItMayHave) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit few{.rlim_cur = 300, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  const LocalNode node = describe_local_node({.processes = "2"}, {.node = 0, .address = "127.0.0.1"});
  rlimit after{};
  ::getrlimit(RLIMIT_NOFILE, &after);
  ::setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_EQ(after.rlim_cur, std::min<rlim_t>(before.rlim_max, 1 << 20));
  EXPECT_EQ(after.rlim_max, before.rlim_max);
  EXPECT_EQ(node.usual_open_files, 300u) << "for its workers";
}

}  // namespace
}  // namespace trireme::launch
