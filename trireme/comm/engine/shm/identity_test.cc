#include "trireme/comm/engine/shm/identity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "trireme/core/error.h"
#include "trireme/core/fd.h"
#include "trireme/store/memory_store.h"

namespace trireme::comm::shm {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

TEST(Identity, AProcessIsOnItsOwnHost) {
  const ProcessIdentity me = this_process();
  EXPECT_EQ(me.pid, ::getpid());
  EXPECT_EQ(me.host.boot_id.size(), 36u);
  EXPECT_GT(me.cpus.count(), 0u);
  EXPECT_EQ(difference(me.host, this_process().host), std::nullopt);
}

TEST(Identity, EveryPartOfTheHostCounts) {
  const HostIdentity here{"b1", 10, 20};
  EXPECT_THAT(difference(here, {"b2", 10, 20}).value(), HasSubstr("boot id b1 and b2"));
  EXPECT_THAT(difference(here, {"b1", 11, 20}).value(), HasSubstr("ipc namespace 10 and 11"));
  EXPECT_THAT(difference(here, {"b1", 10, 21}).value(), HasSubstr("pid namespace 20 and 21"));
}

TEST(Identity, SurvivesTheStore) {
  ProcessIdentity identity = this_process();
  identity.cpus.set(1023);
  EXPECT_EQ(decode_identity(encode(identity)), identity);
}

TEST(Identity, NonsenseIsAPeerError) {
  for (const char* text : {"", "a b c", "b1 x 20 3 4 ff", "b1 10 20 3 -4 ff", "b1 10 20 3 4 ff more"})
    EXPECT_THROW(decode_identity(text), PeerError) << text;
}

TEST(Identity, IsExchanged) {
  store::MemoryStore store;
  std::thread other([&] { exchange_identities(store, "g/", {1, 2}, Deadline::in(20s)); });
  const auto all = exchange_identities(store, "g/", {0, 2}, Deadline::in(20s));
  other.join();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[1].pid, ::getpid());
}

TEST(Identity, AMissingRankIsAPeerError) {
  store::MemoryStore store;
  EXPECT_THROW(exchange_identities(store, "g/", {0, 2}, Deadline::in(1ms)), PeerError);
}

TEST(StartTime, IsCountedFromTheLastBracket) {
  const std::string tail = " 1 1 1 0 -1 4 0 0 0 0 0 0 0 0 20 0 3 0 777 1 2";
  EXPECT_EQ(start_time_in("12 (a) b (c)) S" + tail), 777u);
  EXPECT_EQ(start_time_in("12 (a) Z" + tail), 777u) << "only the main thread has ended";
}

TEST(StartTime, RemainsAreNoProcess) {
  EXPECT_EQ(start_time_in("12 (a) Z 1 1 1 0 -1 4 0 0 0 0 0 0 0 0 20 0 1 0 777 1 2"), std::nullopt);
  EXPECT_EQ(start_time_in("12 (a) S 1"), std::nullopt);
  EXPECT_EQ(start_time_in("12 (a)"), std::nullopt);
  EXPECT_EQ(start_time_in(""), std::nullopt);
}

TEST(Alive, ZombiesAndReusedNumbersAreNot) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::pause();
    ::_exit(0);
  }
  const auto start = start_time_of(child);
  ASSERT_TRUE(start.has_value());
  EXPECT_TRUE(is_alive(child, *start));
  EXPECT_FALSE(is_alive(child, *start + 1)) << "another process of this number";
  ::kill(child, SIGKILL);
  siginfo_t info{};
  ::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT);
  EXPECT_FALSE(is_alive(child, *start)) << "a zombie";
  ::waitpid(child, nullptr, 0);
  EXPECT_FALSE(is_alive(child, *start));
}

}  // namespace
}  // namespace trireme::comm::shm
