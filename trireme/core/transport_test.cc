#include "trireme/core/transport.h"

#include <gmock/gmock.h>

#include <vector>

#include "trireme/core/error.h"
#include "trireme/core/test_support.h"

namespace trireme {
namespace {

using ::testing::HasSubstr;

Transport transport_of(const std::vector<int>& host_of, const char* wanted = "auto") {
  return choose_transport(host_of, wanted);
}

std::string transport_refusal(const std::vector<int>& host_of, const char* wanted) {
  return trireme::refusal([&] { transport_of(host_of, wanted); });
}

TEST(Transport, FollowsFromWhereTheRanksAre) {
  EXPECT_EQ(transport_of({0}), Transport::local);
  EXPECT_EQ(transport_of({0, 0}), Transport::shm);
  EXPECT_EQ(transport_of({0, 1}), Transport::gloo);
  EXPECT_EQ(transport_of({0, 0, 1, 1}), Transport::hierarchical);
  EXPECT_EQ(transport_of({0, 0, 0, 1}), Transport::hierarchical);
  EXPECT_EQ(transport_of({0, 1, 0, 1}), Transport::hierarchical);
  EXPECT_EQ(transport_of({0, 0}, ""), Transport::shm);
}

TEST(Transport, WishesAreGranted) {
  EXPECT_EQ(transport_of({0, 0}, "gloo"), Transport::gloo);
  EXPECT_EQ(transport_of({0, 0, 1, 1}, "gloo"), Transport::gloo);
  EXPECT_EQ(transport_of({0, 0}, "shm"), Transport::shm);
  EXPECT_EQ(transport_of({0, 1}, "hierarchical"), Transport::hierarchical);
  EXPECT_EQ(transport_of({0, 0}, "hierarchical"), Transport::shm) << "one host: nothing is left of a hierarchy";
}

TEST(Transport, ImpossibleWishesAreRefused) {
  EXPECT_THAT(transport_refusal({0, 0, 1}, "shm"), HasSubstr("3 ranks on 2 hosts"));
  EXPECT_THAT(transport_refusal({0, 0}, "glue"), HasSubstr("backend glue: there are auto, shm, gloo, hierarchical"));
}

TEST(Transport, Names) {
  EXPECT_STREQ(to_string(Transport::local), "local");
  EXPECT_STREQ(to_string(Transport::hierarchical), "hierarchical");
  EXPECT_STREQ(to_string(Transport::mpi), "mpi");
}

}  // namespace
}  // namespace trireme
