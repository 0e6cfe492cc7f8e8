#include "trireme/comm/engine/liveness.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "trireme/core/clock.h"
#include "trireme/core/error.h"

namespace trireme::comm {
namespace {

using namespace std::chrono_literals;

Deadline soon() {
  return Deadline::in(20s);
}

Life probe(const Endpoint& endpoint, Deadline deadline) {
  const Suspect suspect{0, to_string(endpoint), endpoint};
  return probe_all({&suspect, 1}, deadline)[0].value();
}

// A process with a beacon, and nothing else to do.
class Child {
 public:
  Child() {
    FdPair pipe = make_pipe();
    pid_ = ::fork();
    if (pid_ == 0) {
      const Beacon beacon("127.0.0.1");
      const uint16_t port = beacon.endpoint().port;
      write_all(pipe.second.get(), std::string_view(reinterpret_cast<const char*>(&port), sizeof port));
      for (;;) ::pause();
    }
    if (!wait_readable(pipe.first.get(), soon()) || ::read(pipe.first.get(), &port_, sizeof port_) != sizeof port_)
      ADD_FAILURE() << "no beacon";
  }
  ~Child() { kill(); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  Endpoint endpoint() const { return {"127.0.0.1", port_}; }
  void signal(int number) const { ::kill(pid_, number); }
  void kill() {
    if (pid_ <= 0) return;
    signal(SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

 private:
  pid_t pid_ = -1;
  uint16_t port_ = 0;
};

// Listens, but its queue is full: the kernel drops what else comes.
class Silence {
 public:
  Silence() : listener_(listen_tcp("127.0.0.1", 0, 0)) {
    try {
      for (;;) fill_.push_back(connect_tcp(endpoint(), Deadline::in(200ms)));
    } catch (const PeerError&) {
    }
  }
  Endpoint endpoint() const { return {"127.0.0.1", port_of(local_address(listener_.get()))}; }

 private:
  UniqueFd listener_;
  std::vector<UniqueFd> fill_;
};

TEST(Beacon, AnswersAsLongAsItIsThere) {
  Endpoint endpoint;
  {
    const Beacon beacon("127.0.0.1");
    endpoint = beacon.endpoint();
    EXPECT_EQ(endpoint.host, "127.0.0.1");
    EXPECT_NE(endpoint.port, 0);
    EXPECT_EQ(probe(endpoint, soon()), Life::alive);
  }
  EXPECT_EQ(probe(endpoint, soon()), Life::dead);
}

// Without TCP_DEFER_ACCEPT the queue would be full after 4096.
TEST(Beacon, AnswersAnyNumberOfProbes) {
  const Beacon beacon("127.0.0.1");
  const std::vector<Suspect> suspects(5000, Suspect{0, "me", beacon.endpoint()});
  for (const auto& life : probe_all(suspects, soon())) ASSERT_EQ(life, Life::alive);
  EXPECT_EQ(blame(suspects), Blame());
}

TEST(Beacon, AnAddressThatIsNotOursIsASystemError) {
  EXPECT_THROW(Beacon("203.0.113.77"), SystemError);
}

TEST(Probe, AStoppedProcessLivesAndAKilledOneIsDead) {
  Child child;
  EXPECT_EQ(probe(child.endpoint(), soon()), Life::alive);
  child.signal(SIGSTOP);
  EXPECT_EQ(probe(child.endpoint(), soon()), Life::alive);
  child.kill();
  EXPECT_EQ(probe(child.endpoint(), soon()), Life::dead);
}

TEST(Probe, SilenceIsUnreachableAtTheDeadline) {
  const Silence silence;
  const auto begin = Clock::now();
  EXPECT_EQ(probe(silence.endpoint(), Deadline::in(100ms)), Life::unreachable);
  EXPECT_GE(Clock::now() - begin, 100ms);
  EXPECT_EQ(probe({"no-such-host.invalid", 1}, soon()), Life::unreachable);
}

TEST(Blame, NamesTheDeadFirstThenTheUnreachable) {
  const Beacon mine("127.0.0.1");
  const Silence silence;
  Child child;
  const std::vector<Suspect> suspects = {{0, "rank 0", mine.endpoint()},
                                         {1, "rank 1", silence.endpoint()},
                                         {2, "rank 2 (process 123 on b)", child.endpoint()}};
  EXPECT_EQ(blame({&suspects[0], 1}), Blame());
  EXPECT_EQ(blame(suspects, Deadline::in(200ms)), (Blame{1, "rank 1 is unreachable"}));
  child.kill();
  EXPECT_EQ(blame(suspects, Deadline::in(200ms)), (Blame{2, "rank 2 (process 123 on b) died, rank 1 is unreachable"}));
  EXPECT_EQ(blame_dead(suspects, Deadline::in(200ms)), (Blame{2, "rank 2 (process 123 on b) died"}));
}

TEST(Blame, AsksAllAtOnceAndNamesAFew) {
  const Silence silence;
  std::vector<Suspect> suspects;
  for (int rank = 0; rank < 100; ++rank) suspects.push_back({rank, "rank " + std::to_string(rank), silence.endpoint()});
  const auto begin = Clock::now();
  const std::string text = blame(suspects, Deadline::in(200ms)).reason;
  EXPECT_LT(Clock::now() - begin, 5s);
  EXPECT_NE(text.find("rank 7 is unreachable and 92 more"), std::string::npos) << text;
}

TEST(Blame, WithoutDescriptorsBlamesNobody) {
  const Beacon mine("127.0.0.1");
  const std::vector<Suspect> suspects = {{0, "rank 0", mine.endpoint()}};
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{0, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  const Blame nobody = blame(suspects);
  const std::optional<Life> unknown = probe_all(suspects, soon())[0];
  ::setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_EQ(nobody, Blame());
  EXPECT_EQ(unknown, std::nullopt);
}

}  // namespace
}  // namespace trireme::comm
