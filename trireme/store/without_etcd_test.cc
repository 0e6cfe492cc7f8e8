// The store of a Trireme that was built without cpp-httplib.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/core/error.h"
#include "trireme/store/etcd_store.h"

// Of a user's program, which may well use cpp-httplib. This test is compiled together with the sources of the store.
namespace httplib {
class Client {
  int socket_ = -1;
};
}  // namespace httplib

namespace trireme::store {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(WithoutEtcd, IsRefusedWithTheNextStep) {
  try {
    const EtcdStore store({.server = {"etcd1", 2379}});
    FAIL() << "there is a store";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("etcd://etcd1:2379"), HasSubstr("libcpp-httplib-dev"),
                                    HasSubstr("--master HOST:PORT")));
  }
}

}  // namespace
}  // namespace trireme::store
