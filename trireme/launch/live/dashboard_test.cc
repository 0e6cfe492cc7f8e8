#include "trireme/launch/live/dashboard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/core/http/test_client.h"
#include "trireme/core/log.h"

namespace trireme::launch {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

class FakeSource : public PageSource {
 public:
  std::string state() override { return "{\"state\":1}\n"; }
  std::string curves(std::optional<int> rank) override { return "curves of " + std::to_string(rank.value_or(-1)); }
  std::string timelines(const std::vector<int>& ranks) override {
    std::string text = "ranks";
    for (const int rank : ranks) text += " " + std::to_string(rank);
    return text;
  }
  std::optional<std::string> log(int rank) override {
    return rank < 2 ? std::optional("log of " + std::to_string(rank)) : std::nullopt;
  }
  std::string metrics() override { return "trireme_up 1\n"; }
  std::string progress() override { return "{}\n"; }
};

class DashboardTest : public testing::Test {
 protected:
  std::string ask(const std::string& target, const std::string& headers = "", const std::string& method = "GET") {
    return http::TestClient(page_.port())
        .ask(method + " " + target + " HTTP/1.1\r\nHost: localhost:1\r\nConnection: close\r\n" + headers + "\r\n");
  }
  FakeSource source_;
  Dashboard page_{{.address = {"127.0.0.1", 0}}, source_};
};

TEST_F(DashboardTest, ThePageBringsAllItNeeds) {
  const std::string html = ask("/");
  EXPECT_THAT(html, StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(html, HasSubstr("text/html; charset=utf-8"));
  EXPECT_THAT(html, Not(HasSubstr("https://"))) << "it works offline";
  EXPECT_THAT(ask("/app.js"), HasSubstr("text/javascript"));
  EXPECT_THAT(ask("/app.css"), HasSubstr("text/css"));
}

TEST_F(DashboardTest, StrictHeadersOnEveryAnswer) {
  for (const char* target : {"/", "/api/state", "/nothing"}) {
    const std::string answer = ask(target);
    EXPECT_THAT(answer, HasSubstr("Content-Security-Policy: default-src 'none'; script-src 'self'; "));
    EXPECT_THAT(answer, Not(HasSubstr("unsafe")));
    EXPECT_THAT(answer, HasSubstr("X-Content-Type-Options: nosniff"));
    EXPECT_THAT(answer, HasSubstr("Cache-Control: no-store"));
  }
}

TEST_F(DashboardTest, Data) {
  EXPECT_THAT(ask("/api/state"), HasSubstr("{\"state\":1}"));
  EXPECT_THAT(ask("/api/curves"), HasSubstr("curves of -1"));
  EXPECT_THAT(ask("/api/curves?rank=3"), HasSubstr("curves of 3"));
  EXPECT_THAT(ask("/api/timeline?ranks=0,2,x,5"), HasSubstr("ranks 0 2 5"));
  EXPECT_THAT(ask("/api/log?rank=1"), HasSubstr("log of 1"));
  EXPECT_THAT(ask("/metrics"), HasSubstr("text/plain; version=0.0.4"));
  EXPECT_THAT(ask("/progress.json"), StartsWith("HTTP/1.1 200"));
}

TEST_F(DashboardTest, NoPathLeadsToAFile) {
  for (const char* target :
       {"/../etc/passwd", "/..%2f..%2fetc/passwd", "/app.js/../../x", "//etc/passwd", "/page/app.js",
        "/log/workerlog.0", "/api/log?rank=../../x", "/api/log?rank=2", "/api/log", "/api/"})
    EXPECT_THAT(ask(target), testing::AnyOf(StartsWith("HTTP/1.1 404"), StartsWith("HTTP/1.1 400"))) << target;
}

TEST_F(DashboardTest, NothingCanBeChanged) {
  for (const char* method : {"POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"}) {
    const std::string answer = ask("/api/state", "Content-Length: 0\r\n", method);
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 405")) << method;
    EXPECT_THAT(answer, HasSubstr("Allow: GET, HEAD")) << method;
  }
  EXPECT_THAT(ask("/", "Content-Length: 5\r\n", "POST"), StartsWith("HTTP/1.1 413")) << "a request has no body";
  const std::string head = ask("/api/state", "", "HEAD");
  EXPECT_THAT(head, Not(HasSubstr("{\"state\"")));
}

TEST_F(DashboardTest, AWebSiteCannotMakeABrowserAsk) {
  http::TestClient client(page_.port());
  EXPECT_THAT(client.ask("GET /api/state HTTP/1.1\r\nHost: evil.example\r\n\r\n"), StartsWith("HTTP/1.1 403"));
  EXPECT_THAT(client.ask("GET /api/state HTTP/1.1\r\nHost: 127.x.evil.example\r\n\r\n"), StartsWith("HTTP/1.1 403"));
  EXPECT_THAT(client.ask("GET /api/state HTTP/1.1\r\nHost: 127.0.0.1:8080\r\n\r\n"), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(client.ask("GET /api/state HTTP/1.1\r\nHost: [::1]:8080\r\n\r\n"), StartsWith("HTTP/1.1 200"));
}

TEST_F(DashboardTest, HeadersAreBounded) {
  EXPECT_THAT(ask("/", "X: " + std::string(10'000, 'x') + "\r\n"), StartsWith("HTTP/1.1 431"));
  std::string many;
  for (int i = 0; i < 60; ++i) many += "X" + std::to_string(i) + ": 1\r\n";
  EXPECT_THAT(ask("/", many), StartsWith("HTTP/1.1 431"));
}

class TokenTest : public DashboardTest {
 protected:
  TokenTest() : before_(set_log_sink([this](LogLevel, std::string_view text) { log_ += std::string(text) + "\n"; })) {}
  ~TokenTest() override { set_log_sink(before_); }
  std::string ask_locked(const std::string& target, const std::string& headers = "") {
    return http::TestClient(locked_.port())
        .ask("GET " + target + " HTTP/1.1\r\nHost: node1\r\nConnection: close\r\n" + headers + "\r\n");
  }
  std::string token() const {
    const std::string url = locked_.url(true);
    return url.substr(url.find("#token=") + 7);
  }
  std::string log_;
  LogSink before_;
  Dashboard locked_{{.address = {"127.0.0.1", 0}, .needs_token = true}, source_};
};

TEST_F(TokenTest, EverythingButTheEmptyPageIsLocked) {
  EXPECT_THAT(ask_locked("/"), StartsWith("HTTP/1.1 200"));
  for (const char* target : {"/api/state", "/api/login", "/api/log?rank=0", "/metrics", "/progress.json", "/nothing"}) {
    EXPECT_THAT(ask_locked(target), StartsWith("HTTP/1.1 401")) << target;
    EXPECT_THAT(ask_locked(target, "Authorization: Bearer " + std::string(64, '0') + "\r\n"),
                StartsWith("HTTP/1.1 401"));
    EXPECT_THAT(ask_locked(target, "Authorization: Bearer \r\n"), StartsWith("HTTP/1.1 401"));
    EXPECT_THAT(ask_locked(target + std::string("?token=") + token()), StartsWith("HTTP/1.1 401")) << "not in a URL";
  }
  EXPECT_THAT(log_, HasSubstr("without its token"));
  EXPECT_THAT(log_, Not(HasSubstr(token())));
}

TEST_F(TokenTest, TheTokenIsExchangedForACookie) {
  EXPECT_EQ(token().size(), 64u);
  EXPECT_THAT(locked_.url(false), Not(HasSubstr("token")));
  const std::string bearer = "Authorization: Bearer " + token() + "\r\n";
  EXPECT_THAT(ask_locked("/metrics", bearer), HasSubstr("trireme_up 1"));
  const std::string answer = ask_locked("/api/login", bearer);
  EXPECT_THAT(answer, HasSubstr("HttpOnly; SameSite=Strict"));
  EXPECT_THAT(answer, Not(HasSubstr(token())));
  const size_t start = answer.find("Set-Cookie: ") + 12;
  const std::string cookie = answer.substr(start, answer.find(';', start) - start);
  EXPECT_THAT(ask_locked("/api/state", "Cookie: other=1; " + cookie + "\r\n"), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(ask_locked("/api/state", "Cookie: " + cookie + "0\r\n"), StartsWith("HTTP/1.1 401"));
  EXPECT_THAT(ask_locked("/api/login", "Cookie: " + cookie + "\r\n"), Not(HasSubstr("Set-Cookie")));
}

TEST(Dashboard, WhatIsThisMachineOnly) {
  for (const char* host : {"localhost", "127.0.0.1", "127.8.8.8", "::1"}) EXPECT_TRUE(is_loopback_host(host)) << host;
  for (const char* host : {"0.0.0.0", "::", "10.0.0.1", "127.evil.example", "127.x.evil.example", "127.x.evil.com",
                           "127.0.0.256", "127.0.0.-1", "127.0.0.", "127.0.0.1.", "localhost.evil.example"})
    EXPECT_FALSE(is_loopback_host(host)) << host;
}

}  // namespace
}  // namespace trireme::launch
