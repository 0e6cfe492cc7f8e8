#include "trireme/core/http/server.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "trireme/core/error.h"
#include "trireme/core/http/test_client.h"
#include "trireme/core/test_support.h"

namespace trireme::http {
namespace {

using std::chrono::seconds;
using testing::HasSubstr;
using testing::StartsWith;

constexpr size_t kLarge = 32u << 20;  // more than the kernel keeps for a connection
constexpr const char* kGet = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";

std::string posted(std::string_view body, std::string_view path = "/") {
  return fmt::format("POST {} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{}", path, body.size(), body);
}

/// A server that echoes; /slow waits for release(), /throw throws, /large answers much, /left waits until its client
/// has left.
class Echo {
 public:
  explicit Echo(const ServerOptions& options = {}, uint16_t port = 0)
      : server_(
            listen_tcp("127.0.0.1", port), options, [this](Request& request) { return handle(request); },
            [this](int status, double) { count(status); }) {}
  ~Echo() { release(); }

  Server& server() { return server_; }
  uint16_t port() const { return server_.port(); }
  void release() {
    {
      std::lock_guard lock(mutex_);
      open_ = true;
    }
    changed_.notify_all();
  }
  void wait_in_flight(size_t count) {
    const Deadline deadline = Deadline::in(seconds(10));
    while (server_.counts().in_flight < count && !deadline.passed()) std::this_thread::yield();
    ASSERT_EQ(server_.counts().in_flight, count);
  }
  int handled() const { return handled_; }
  std::vector<int> statuses() {
    std::lock_guard lock(mutex_);
    return statuses_;
  }

 private:
  Response handle(const Request& request) {
    if (request.late) return error_response(problem("overloaded"), "late");
    if (request.path == "/throw") throw std::runtime_error("a secret of the inside");
    if (request.path == "/large") return {.type = "text/plain", .body = std::string(kLarge, 'x')};
    if (request.path == "/left") {
      const Deadline patience = Deadline::in(seconds(10));
      while (!request.client_has_left() && !patience.passed()) std::this_thread::yield();
    }
    ++handled_;
    if (request.path == "/slow") {
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, seconds(20), [this] { return open_; });
    }
    return {.type = "text/plain", .body = request.method + " " + request.body};
  }
  void count(int status) {
    std::lock_guard lock(mutex_);
    statuses_.push_back(status);
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
  std::vector<int> statuses_;
  std::atomic<int> handled_{0};
  Server server_;
};

TEST(HttpServer, AnswersManyRequestsOnOneConnection) {
  Echo echo;
  TestClient client(echo.port());
  for (int i = 0; i < 50; ++i)
    EXPECT_THAT(client.ask(posted(std::to_string(i))), testing::EndsWith(fmt::format("\r\n\r\nPOST {}", i)));
  EXPECT_EQ(echo.statuses(), std::vector<int>(50, 200));
}

TEST(HttpServer, RequestsMayBeSentAhead) {
  Echo echo;
  TestClient client(echo.port());
  client.send(posted("one") + posted("two") + posted("three"));
  for (const char* body : {"one", "two", "three"}) EXPECT_THAT(client.answer(), HasSubstr(std::string("POST ") + body));
}

TEST(HttpServer, AnswersConnectionsInParallelAndMoreThanItHasWorkers) {
  Echo echo({.workers = 2});
  std::vector<TestClient> clients;
  for (int i = 0; i < 40; ++i) clients.emplace_back(echo.port());
  for (TestClient& client : clients) client.send(posted("x"));
  for (TestClient& client : clients) EXPECT_THAT(client.answer(), HasSubstr("200 OK"));
}

TEST(HttpServer, IdleAndSlowConnectionsKeepNoWorker) {
  Echo echo({.workers = 1});
  std::vector<TestClient> silent;
  for (int i = 0; i < 20; ++i) silent.emplace_back(echo.port());
  for (TestClient& client : silent) client.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Le");
  TestClient client(echo.port());
  EXPECT_THAT(client.ask(kGet), HasSubstr("200 OK"));
}

TEST(HttpServer, HeadHasNoBody) {
  Echo echo;
  TestClient client(echo.port());
  client.send("HEAD / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  client.closed();
  const std::string answer = client.answer();
  EXPECT_THAT(answer, HasSubstr("Content-Length: 5\r\n"));
  EXPECT_THAT(answer, testing::EndsWith("\r\n\r\n"));
}

TEST(HttpServer, ClosesWhenAskedTo) {
  Echo echo;
  TestClient client(echo.port());
  EXPECT_THAT(client.ask("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"), HasSubstr("Connection: close"));
  EXPECT_TRUE(client.closed());
}

TEST(HttpServer, SendsContinueToAClientThatWaitsForIt) {
  Echo echo;
  TestClient client(echo.port());
  EXPECT_THAT(client.ask("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n"),
              StartsWith("HTTP/1.1 100 Continue"));
  EXPECT_THAT(client.ask("hi"), HasSubstr("POST hi"));
}

TEST(HttpServer, ARefusalReachesAClientThatIsStillSending) {
  Echo echo({.limits = {.body_bytes = 1000}});
  TestClient client(echo.port());
  client.send(posted(std::string(4u << 20, 'x')));
  EXPECT_THAT(client.answer(), HasSubstr("413"));
  TestClient chunked(echo.port());
  chunked.send("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
  for (int i = 0; i < 100; ++i) chunked.send("40\r\n" + std::string(64, 'x') + "\r\n");
  EXPECT_THAT(chunked.answer(), HasSubstr("413"));
  EXPECT_EQ(echo.statuses(), (std::vector<int>{413, 413}));
}

TEST(HttpServer, RefusesBytesThatAreNotHttp) {
  Echo echo;
  TestClient client(echo.port());
  EXPECT_THAT(client.ask("hello\r\n\r\n"), HasSubstr("400 Bad Request"));
  EXPECT_TRUE(client.closed());
}

TEST(HttpServer, RefusesTlsAtOnce) {
  Echo echo;
  TestClient client(echo.port());
  EXPECT_THAT(client.ask("\x16\x03\x01"), AllOf(HasSubstr("400 Bad Request"), HasSubstr("https://")));
  EXPECT_TRUE(client.closed());
}

TEST(HttpServer, ASlowRequestIsEndedHoweverItDribbles) {
  Echo echo({.read_timeout = Millis(150)});
  TestClient client(echo.port());
  client.send("GET / HTTP/1.1\r\n");
  const Deadline deadline = Deadline::in(seconds(10));
  while (!client.hears(Deadline::in(Millis(10))) && !deadline.passed()) client.send("a");
  EXPECT_FALSE(deadline.passed());
  EXPECT_THAT(client.answer(), HasSubstr("408 Request Timeout"));
}

TEST(HttpServer, SilenceIsEnded) {
  Echo echo({.idle_timeout = Millis(50)});
  TestClient client(echo.port());
  EXPECT_TRUE(client.closed());
  EXPECT_TRUE(echo.statuses().empty());
}

TEST(HttpServer, AFullServerClosesTheLongestIdleToMakeRoom) {
  Echo echo({.max_connections = 3});
  std::vector<TestClient> clients;
  for (int i = 0; i < 3; ++i) {
    clients.emplace_back(echo.port());
    EXPECT_THAT(clients.back().ask(kGet), HasSubstr("200"));
  }
  TestClient fourth(echo.port());
  EXPECT_THAT(fourth.ask(kGet), HasSubstr("200"));
  EXPECT_TRUE(clients[0].closed());
  EXPECT_THAT(clients[2].ask(kGet), HasSubstr("200"));
  EXPECT_LE(echo.server().counts().connections, 3U);
}

TEST(HttpServer, AFullServerOfBusyConnectionsLetsNewOnesWait) {
  Echo echo({.workers = 2, .max_connections = 2});
  TestClient first(echo.port()), second(echo.port());
  first.send(posted("", "/slow"));
  second.send(posted("", "/slow"));
  echo.wait_in_flight(2);
  TestClient third(echo.port());
  third.send(kGet);
  EXPECT_EQ(echo.server().counts().connections, 2U);
  echo.release();
  EXPECT_THAT(first.answer(), HasSubstr("200"));
  EXPECT_THAT(third.answer(), HasSubstr("200"));
}

TEST(HttpServer, AClientThatHasJustSentIsNotClosedToMakeRoom) {
  Echo echo({.max_connections = 2, .is_quick = [](const Request& request) { return request.path == "/slow"; }});
  TestClient first(echo.port()), second(echo.port());
  EXPECT_THAT(second.ask(kGet), HasSubstr("200"));
  first.send(posted("", "/slow"));  // on the server's own thread, so that it meets all that follows at once
  echo.wait_in_flight(1);
  second.send(kGet);
  TestClient third(echo.port());
  third.send(kGet);
  echo.release();
  for (TestClient* client : {&first, &second, &third}) EXPECT_THAT(client->answer(), HasSubstr("200"));
}

TEST(HttpServer, ARequestAtWorkHasNoTimeToRead) {
  Echo echo({.max_connections = 1, .read_timeout = Millis(500)});
  TestClient busy(echo.port());
  busy.send(posted("", "/slow"));
  echo.wait_in_flight(1);
  TestClient next(echo.port());
  next.send(kGet);
  echo.release();
  EXPECT_THAT(busy.answer(), HasSubstr("200"));
  EXPECT_THAT(next.answer(), HasSubstr("200"));
}

TEST(HttpServer, AFullServerOfSlowSendersLetsTheSlowestGo) {
  Echo echo({.max_connections = 2, .read_timeout = seconds(30)});
  TestClient slow(echo.port()), slower(echo.port());
  for (TestClient* client : {&slow, &slower})
    EXPECT_THAT(client->ask("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\nExpect: 100-continue\r\n\r\n"),
                HasSubstr("100 Continue"));  // so it has begun
  const auto begin = Clock::now();
  TestClient client(echo.port());
  EXPECT_THAT(client.ask(kGet), HasSubstr("200"));
  EXPECT_GT(Clock::now() - begin, Millis(800)) << "a request has a fair time to come";
}

TEST(HttpServer, SlowSendersMakeRoomForARequestThatNeedsMemory) {
  Echo echo({.limits = {.body_bytes = 1u << 20}, .max_held_bytes = 1u << 20});
  TestClient slow(echo.port());
  slow.send(fmt::format("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1048576\r\n\r\n{}", std::string(1048575, 'x')));
  ASSERT_FALSE(slow.hears(Deadline::in(Millis(1500)))) << "nobody needs the memory yet";
  const std::string request = posted(std::string(100000, 'y'));
  const Deadline patience = Deadline::in(seconds(10));  // less than the read timeout
  while (!slow.hears(Deadline::in(Millis(10))) && !patience.passed()) TestClient(echo.port()).ask(request);
  EXPECT_THAT(slow.answer(), AllOf(HasSubstr("503"), HasSubstr("other requests need the memory")));
  EXPECT_THAT(TestClient(echo.port()).ask(request), HasSubstr("200 OK"));
}

TEST(HttpServer, AnswersThatAreNotReadMakeRoomForARequestThatNeedsMemory) {
  Echo echo({.limits = {.body_bytes = 1u << 20}, .max_held_bytes = 1u << 20, .write_timeout = seconds(600)});
  TestClient greedy(echo.port());
  greedy.send(posted("", "/large"));
  ASSERT_TRUE(greedy.hears(Deadline::in(seconds(10))));  // its answer is held, as it does not read on
  const std::string request = posted(std::string(100000, 'y'));
  EXPECT_TRUE(eventually([&] { return TestClient(echo.port()).ask(request).find("200 OK") != std::string::npos; }));
  EXPECT_TRUE(greedy.closed());
}

TEST(HttpServer, BoundsTheMemoryOfAllRequestsTogether) {
  Echo echo({.limits = {.body_bytes = 1u << 20}, .max_held_bytes = 1u << 20});
  TestClient first(echo.port()), second(echo.port());
  const std::string most(900000, 'x');
  first.send(fmt::format("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 900001\r\n\r\n{}", most));
  // The one that exceeds the sum is told to retry.
  second.send(fmt::format("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 900001\r\n\r\n{}", most));
  const Deadline patience = Deadline::in(seconds(10));
  bool first_hears = false;
  while (!(first_hears = first.hears(Deadline::in(Millis(1)))) && !second.hears(Deadline::in(Millis(1))))
    ASSERT_FALSE(patience.passed());
  const std::string answer = (first_hears ? first : second).answer();
  EXPECT_THAT(answer, HasSubstr("503 Service Unavailable"));
  EXPECT_THAT(answer, HasSubstr("Retry-After: 1"));
}

TEST(HttpServer, TheLargestBodyFitsIntoTheMemoryAlone) {
  Echo echo({.limits = {.body_bytes = 1u << 20}, .max_held_bytes = 1u << 20});
  TestClient client(echo.port()), silent(echo.port());
  const std::string body(1u << 20, 'x');
  EXPECT_THAT(client.ask(posted(body)), HasSubstr("200 OK"));
  EXPECT_THAT(client.ask(fmt::format("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
                                     "{:x}\r\n{}\r\n0\r\n\r\n",
                                     body.size(), body)),
              HasSubstr("200 OK"));
}

TEST(HttpServer, WhatIsOnlyAnnouncedKeepsNobodyOut) {
  Echo echo({.limits = {.body_bytes = 16u << 20}, .max_held_bytes = 16u << 20});
  std::vector<TestClient> clients;
  for (int i = 0; i < 40; ++i) {
    clients.emplace_back(echo.port());
    EXPECT_THAT(
        clients.back().ask("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 16000000\r\nExpect: 100-continue\r\n\r\n"),
        HasSubstr("100 Continue"));  // so its header was read
  }
  TestClient client(echo.port());
  EXPECT_THAT(client.ask(kGet), HasSubstr("200 OK"));
}

TEST(HttpServer, IdleConnectionsAreExemptFromTheMemoryLimit) {
  Echo echo({.max_held_bytes = 1u << 20});
  TestClient quiet(echo.port());
  quiet.send(posted("", "/slow"));
  echo.wait_in_flight(1);
  {
    TestClient greedy(echo.port());
    greedy.send(posted("", "/large"));
    ASSERT_TRUE(greedy.hears(Deadline::in(seconds(10))));  // its answer is held, as it does not read on
    echo.release();
    EXPECT_THAT(quiet.answer(), HasSubstr("200 OK"));
  }
  const Deadline patience = Deadline::in(seconds(10));
  while (echo.server().counts().connections > 1 && !patience.passed()) std::this_thread::yield();
  EXPECT_THAT(quiet.ask(kGet), HasSubstr("200 OK"));
}

TEST(HttpServer, QuickRequestsWaitForNoWorkerAndTooManyOthersAreShed) {
  Echo echo(
      {.workers = 1, .max_waiting = 1, .is_quick = [](const Request& request) { return request.path == "/quick"; }});
  TestClient running(echo.port()), waiting(echo.port()), third(echo.port());
  running.send(posted("a", "/slow"));
  echo.wait_in_flight(1);
  waiting.send(posted("b"));
  echo.wait_in_flight(2);
  const std::string shed = third.ask(posted("c"));
  EXPECT_THAT(shed, AllOf(HasSubstr("503 Service Unavailable"), HasSubstr("Retry-After: 1"), HasSubstr("keep-alive")));
  std::string ahead;
  for (int i = 0; i < 500; ++i) ahead += posted(std::to_string(i), "/quick");
  third.send(ahead);
  for (int i = 0; i < 500; ++i) EXPECT_THAT(third.answer(), testing::EndsWith(fmt::format("POST {}", i)));
  echo.release();
  EXPECT_THAT(running.answer(), HasSubstr("POST a"));
  EXPECT_THAT(waiting.answer(), HasSubstr("POST b"));
  EXPECT_THAT(third.ask(posted("d")), HasSubstr("POST d"));
}

TEST(HttpServer, AHandlerThatThrowsIsA500WithoutItsWords) {
  const CaughtLog log;
  Echo echo;
  TestClient client(echo.port());
  const std::string answer = client.ask(posted("", "/throw"));
  EXPECT_THAT(answer, HasSubstr("500 Internal Server Error"));
  EXPECT_THAT(answer, testing::Not(HasSubstr("secret")));
  EXPECT_THAT(client.ask(kGet), HasSubstr("200 OK"));
  EXPECT_EQ(log.count("POST /throw: a secret of the inside"), 1U);
}

TEST(HttpServer, AClientThatLeavesHarmsNobody) {
  Echo echo;
  for (int i = 0; i < 20; ++i) {
    TestClient client(echo.port());
    client.send(i % 2 == 0 ? posted("", "/slow") : std::string("POST / HT"));
  }
  echo.release();
  TestClient client(echo.port());
  EXPECT_THAT(client.ask(kGet), HasSubstr("200 OK"));
}

TEST(HttpServer, AHandlerIsToldThatItsClientHasLeft) {
  for (const bool reset : {false, true}) {
    Echo echo;
    {
      TestClient client(echo.port());
      client.send(posted("", "/left") + posted("ahead", "/left"));
      echo.wait_in_flight(1);
      if (reset) client.reset();
    }
    EXPECT_TRUE(eventually([&] { return echo.server().counts().connections == 0; }));
    EXPECT_EQ(echo.statuses(), (std::vector<int>{499}));
  }
}

TEST(HttpServer, WhatWaitsForAWorkerIsDroppedWhenItsClientHasLeft) {
  Echo echo({.workers = 1});
  TestClient busy(echo.port());
  busy.send(posted("", "/slow"));
  echo.wait_in_flight(1);
  for (int i = 1; i <= 20; ++i) TestClient(echo.port()).send(posted("x"));
  echo.wait_in_flight(21);
  TestClient patient(echo.port());
  patient.send(posted("y"));
  patient.end();  // it is done with sending, and reads on
  echo.wait_in_flight(22);
  ASSERT_TRUE(patient.hears(Deadline::in(seconds(10)))) << "the start of its answer, which shows that it is there";
  ASSERT_TRUE(eventually([&] { return echo.server().counts().abandoned == 20; }));
  echo.release();
  EXPECT_THAT(patient.answer(), AllOf(StartsWith("HTTP/1.1 200 OK\r\nDate: "), testing::EndsWith("POST y")));
  EXPECT_EQ(echo.handled(), 2);
}

TEST(HttpServer, ResetConnectionsAreNotCountedWhateverTheyWereDoing) {
  Echo echo;
  TestClient silent(echo.port()), sending(echo.port()), waiting(echo.port()), ahead(echo.port()), reading(echo.port());
  sending.send("POST / HT");
  waiting.send(posted("", "/slow"));
  ahead.send(posted("", "/slow") + posted("two") + "POST / HT");
  echo.wait_in_flight(2);
  reading.send(posted("", "/large"));
  ASSERT_TRUE(reading.hears(Deadline::in(seconds(10))));  // the answer is too large for the kernel: some of it waits
  ASSERT_TRUE(eventually([&] { return echo.server().counts().connections == 5; }));
  for (TestClient* client : {&silent, &sending, &waiting, &ahead, &reading}) client->reset();
  EXPECT_TRUE(eventually([&] { return echo.server().counts().connections == 2; })) << "only those at work are left";
  echo.release();
  EXPECT_TRUE(eventually([&] { return echo.server().counts().connections == 0; }));
  EXPECT_EQ(echo.server().counts().in_flight, 0U);
}

TEST(HttpServer, DrainAnswersWhatHasBegunAndRefusesWhatComesLater) {
  Echo echo;
  TestClient busy(echo.port()), half(echo.port()), idle(echo.port());
  EXPECT_THAT(idle.ask(kGet), HasSubstr("keep-alive"));
  EXPECT_THAT(half.ask(kGet), HasSubstr("keep-alive"));
  busy.send(posted("x", "/slow"));
  echo.wait_in_flight(1);
  half.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nh");
  echo.server().drain();
  const Deadline patience = Deadline::in(seconds(10));
  EXPECT_TRUE(echo.server().counts().draining);
  const auto refuses = [&] {
    try {
      TestClient late(echo.port());
      return false;
    } catch (const PeerError&) {
      return true;
    }
  };
  while (!refuses() && !patience.passed()) std::this_thread::yield();
  EXPECT_THAT(idle.ask(kGet), AllOf(HasSubstr("503"), HasSubstr("Connection: close")));
  EXPECT_THAT(half.ask("i"), AllOf(HasSubstr("POST hi"), HasSubstr("Connection: close")));
  EXPECT_FALSE(echo.server().wait(Deadline::in(Millis(1))));
  echo.release();
  EXPECT_THAT(busy.answer(), HasSubstr("POST x"));
  EXPECT_TRUE(busy.closed());
  EXPECT_TRUE(echo.server().wait(Deadline::in(seconds(10))));
}

TEST(HttpServer, DrainServesThoseWhoHaveOnlyConnected) {
  Echo echo;
  TestClient client(echo.port());
  echo.server().drain();
  EXPECT_THAT(client.ask(kGet), HasSubstr("200 OK"));
  EXPECT_TRUE(echo.server().wait(Deadline::in(seconds(10))));
}

TEST(HttpServer, AnEmptyServerDrainsAtOnce) {
  Echo echo;
  echo.server().drain();
  EXPECT_TRUE(echo.server().wait(Deadline::in(seconds(10))));
}

TEST(HttpServer, ATakenPortIsNamed) {
  Echo echo;
  try {
    Echo second({}, echo.port());
    FAIL();
  } catch (const SystemError& error) {
    EXPECT_THAT(error.what(), HasSubstr(std::to_string(echo.port())));
  }
}

}  // namespace
}  // namespace trireme::http
