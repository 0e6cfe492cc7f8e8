#include "trireme/core/http/parser.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace trireme::http {
namespace {

using testing::HasSubstr;
using State = Parser::State;

constexpr Limits kSmall{.header_bytes = 200, .headers = 4, .body_bytes = 10};

Parser parsed(std::string_view text, Limits limits = kSmall) {
  Parser parser(limits);
  parser.take(text);
  return parser;
}

std::string post(std::string_view headers, std::string_view body) {
  return fmt::format("POST /p HTTP/1.1\r\nHost: x\r\n{}\r\n{}", headers, body);
}

int refused_with(std::string_view text) {
  const Parser parser = parsed(text);
  return parser.state() == State::refused ? parser.refusal().status : 0;
}

TEST(HttpParser, ReadsARequest) {
  Parser parser;
  const std::string text = "GET /a/b?topk=3&x=y HTTP/1.1\r\nHost: here\r\nX-Some:  a b \t\r\n\r\nGET /next";
  EXPECT_EQ(parser.take(text), text.size() - 9);
  ASSERT_EQ(parser.state(), State::complete);
  const Request& request = parser.request();
  EXPECT_EQ(request.method, "GET");
  EXPECT_EQ(request.path, "/a/b");
  EXPECT_EQ(request.query, "topk=3&x=y");
  EXPECT_EQ(request.header("x-some"), "a b");
  EXPECT_EQ(request.header("missing"), "");
  EXPECT_THAT(request.parameters("topk"), testing::ElementsAre("3"));
  EXPECT_THAT(request.parameters("x"), testing::ElementsAre("y"));
  EXPECT_THAT(request.parameters("t"), testing::IsEmpty());
  EXPECT_TRUE(request.keep_alive);
}

TEST(HttpParser, ParametersMayBeThereTwiceOrEmpty) {
  const Request request{.query = "&a=1&b=&&a=2&ab=3&c&=4&", .headers = {}, .body = ""};
  EXPECT_THAT(request.parameters("a"), testing::ElementsAre("1", "2"));
  EXPECT_THAT(request.parameters("b"), testing::ElementsAre(""));
  EXPECT_THAT(request.parameters("c"), testing::ElementsAre(""));
}

TEST(HttpParser, TheTargetMayNameTheServer) {
  const auto target = [](std::string_view text) {
    Parser parser = parsed(fmt::format("GET {} HTTP/1.1\r\nHost: x\r\n\r\n", text));
    return fmt::format("{} {}", parser.request().path, parser.request().query);
  };
  EXPECT_EQ(target("http://host:80/a/b?x=y"), "/a/b x=y");
  EXPECT_EQ(target("HTTPS://[::1]/a"), "/a ");
  EXPECT_EQ(target("http://host"), "/ ");
  EXPECT_EQ(target("http://host?x=y"), "/ x=y");
  EXPECT_EQ(target("/a?to=http://host/b"), "/a to=http://host/b");
  for (const char* text : {"http://", "http:///a", "http://?x", "ftp://host/a", "http://a b/c", "http:/a", "host:80"})
    EXPECT_EQ(refused_with(fmt::format("GET {} HTTP/1.1\r\nHost: x\r\n\r\n", text)), 400) << text;
}

TEST(HttpParser, ReadsBodiesOfBothKinds) {
  EXPECT_EQ(parsed(post("Content-Length: 5\r\n", "hello")).request().body, "hello");
  const std::string chunks = "3\r\nhel\r\n2;name=value\r\nlo\r\n0\r\nTrailer: x\r\n\r\n";
  Parser parser = parsed(post("Transfer-Encoding: chunked\r\n", chunks));
  ASSERT_EQ(parser.state(), State::complete);
  EXPECT_EQ(parser.request().body, "hello");
  EXPECT_EQ(parsed(post("Content-Length: 5\r\n", "hell")).state(), State::reading);
}

TEST(HttpParser, BytesMayComeInAnyPieces) {
  const std::string text = "\r\n\r\n" + post("Transfer-Encoding: chunked\r\n", "5\r\nhello\r\n0\r\n\r\n");
  for (size_t piece = 1; piece < text.size(); ++piece) {
    Parser parser;
    size_t at = 0;
    for (; at < text.size() && parser.state() == State::reading; at += piece)
      parser.take(std::string_view(text).substr(at, piece));
    EXPECT_EQ(parser.state(), State::complete) << piece;
    EXPECT_EQ(parser.request().body, "hello") << piece;
  }
}

/// What becomes of a text that comes whole and one that comes in pieces.
void expect_the_same_in_pieces(const std::string& text, State state) {
  for (size_t piece = 1; piece <= text.size(); ++piece) {
    Parser parser(kSmall);
    for (size_t at = 0; at < text.size() && parser.state() == State::reading; at += piece)
      parser.take(std::string_view(text).substr(at, piece));
    EXPECT_EQ(parser.state(), state) << text.size() << " bytes in pieces of " << piece;
  }
}

TEST(HttpParser, LimitsDoNotDependOnThePieces) {
  const auto head = [](size_t bytes) {
    std::string text = "GET / HTTP/1.1\r\nHost: x\r\nA: ";
    return text.append(bytes - text.size(), 'a') + "\r\n\r\n";
  };
  expect_the_same_in_pieces(head(kSmall.header_bytes), State::complete);
  expect_the_same_in_pieces(head(kSmall.header_bytes + 1), State::refused);
  const auto chunk = [](size_t bytes) {
    return post("Transfer-Encoding: chunked\r\n", "0;" + std::string(bytes - 2, 'a') + "\r\n\r\n");
  };
  expect_the_same_in_pieces(chunk(256), State::complete);
  expect_the_same_in_pieces(chunk(257), State::refused);
}

TEST(HttpParser, KeepsTheConnectionAsTheClientWishes) {
  const auto keeps = [](std::string_view version, std::string_view header) {
    return parsed(fmt::format("GET / {}\r\nHost: x\r\n{}\r\n", version, header)).request().keep_alive;
  };
  EXPECT_TRUE(keeps("HTTP/1.1", ""));
  EXPECT_FALSE(keeps("HTTP/1.1", "Connection: Close\r\n"));
  EXPECT_FALSE(keeps("HTTP/1.0", ""));
  EXPECT_TRUE(keeps("HTTP/1.0", "Connection: Keep-Alive\r\n"));
}

TEST(HttpParser, RefusesWhatIsNoRequest) {
  for (const char* text :
       {"hello\r\n\r\n", "GET\r\n\r\n", "GET /\r\n\r\n", "GET  HTTP/1.1\r\n\r\n", "G(T / HTTP/1.1\r\nHost: x\r\n\r\n",
        "GET x HTTP/1.1\r\nHost: x\r\n\r\n", "GET /a b HTTP/1.1\r\nHost: x\r\n\r\n", "GET / FTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\n\r\n", "GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", "GET / HTTP/1.1\r\nHost : x\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: x\r\n folded\r\n\r\n", "GET / HTTP/1.1\r\nHost: x\r\nnocolon\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: x\nA: b\r\n\r\n"})
    EXPECT_EQ(refused_with(text), 400) << text;
  EXPECT_EQ(refused_with("GET / HTTP/2.0\r\n\r\n"), 505);
}

TEST(HttpParser, RefusesAtOnceWhatCannotBecomeARequest) {
  const Parser tls = parsed("\x16\x03\x01");
  ASSERT_EQ(tls.state(), State::refused);
  EXPECT_THAT(tls.refusal().body, AllOf(HasSubstr("not_http"), HasSubstr("http:// instead of https://")));
  for (const char* text : {"\x80", " ", "{\"a\": 1", "\r\n\x16", "GET / HTTP/1.1\nHost", "GET / HTTP/1.1\r\nHost: x\n",
                           "GET /x\r\n", "hello\r\n"})
    EXPECT_EQ(refused_with(text), 400) << text;
  EXPECT_EQ(parsed("GET / HTTP/1.1\r\nHost").state(), State::reading);
  const std::string feeds = post("Content-Length: 3\r\n", "\n\n\n");
  expect_the_same_in_pieces(feeds, State::complete);
}

TEST(HttpParser, APostSaysHowLongItIs) {
  EXPECT_EQ(refused_with(post("", "hello")), 411);
  EXPECT_EQ(parsed(post("Content-Length: 0\r\n", "")).state(), State::complete);
  EXPECT_EQ(parsed("GET / HTTP/1.1\r\nHost: x\r\n\r\n").state(), State::complete);
}

TEST(HttpParser, RefusesTwoLengths) {
  EXPECT_EQ(refused_with(post("Content-Length: 5\r\nContent-Length: 5\r\n", "hello")), 400);
  EXPECT_EQ(refused_with(post("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", "hello")), 400);
  EXPECT_EQ(refused_with(post("Transfer-Encoding: gzip, chunked\r\n", "")), 501);
  for (const char* length : {"", "-0", "-1", "+5", "5x", "0x5", "5, 5", "99999999999999999999"})
    EXPECT_EQ(refused_with(post(fmt::format("Content-Length: {}\r\n", length), "hello")), 400) << length;
}

TEST(HttpParser, RefusesChunksOfTheOldProtocol) {
  EXPECT_EQ(refused_with("POST / HTTP/1.0\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
            400);
}

TEST(HttpParser, RefusesABodyAsSoonAsItIsAnnounced) {
  Parser parser = parsed(post("Content-Length: 11\r\nExpect: 100-continue\r\n", ""));
  ASSERT_EQ(parser.state(), State::refused);
  EXPECT_EQ(parser.refusal().status, 413);
  EXPECT_THAT(parser.refusal().body, AllOf(HasSubstr("11 bytes"), HasSubstr("limit is 10")));
  EXPECT_FALSE(parser.wants_continue());
  EXPECT_FALSE(parser.request().keep_alive);
  EXPECT_EQ(refused_with(post("Transfer-Encoding: chunked\r\n", "B\r\n")), 413);
  EXPECT_EQ(refused_with(post("Transfer-Encoding: chunked\r\n", "8\r\n12345678\r\n3\r\n")), 413);
  EXPECT_EQ(refused_with(post("Transfer-Encoding: chunked\r\n", "8\r\n12345678\r\nffffffffffffffff\r\n")), 413);
}

TEST(HttpParser, RefusesBadChunks) {
  for (const char* chunks : {"x\r\n", "\r\n", "-1\r\n", "fffffffffffffffff\r\n", "3\r\nhello\r\n", "5 5\r\n", " 5\r\n",
                             "5 \r\n", "5\t;a\r\n", "5;a\nb\r\n", "5;a\rb\r\n", "5\n\r\n", "0\r\nA: b\nC: d\r\n",
                             "0\r\nA : b\r\n", "0\r\nnocolon\r\n"})
    EXPECT_EQ(refused_with(post("Transfer-Encoding: chunked\r\n", chunks)), 400) << chunks;
  EXPECT_EQ(refused_with(post("Transfer-Encoding: chunked\r\n", std::string(300, '0'))), 400);
  std::string trailers;
  for (int i = 0; i < 100; ++i) trailers += "Trailer: x\r\n";
  EXPECT_EQ(refused_with(post("Transfer-Encoding: chunked\r\n", "0\r\n" + trailers)), 431);
}

TEST(HttpParser, BoundsTheHeader) {
  EXPECT_EQ(refused_with("GET / HTTP/1.1\r\nHost: x\r\nA: " + std::string(300, 'a')), 431);
  EXPECT_EQ(refused_with("GET /" + std::string(300, 'a')), 431);
  EXPECT_EQ(refused_with("GET / HTTP/1.1\r\nHost: x\r\na:\r\nb:\r\nc:\r\nd:\r\n\r\n"), 431);
  EXPECT_EQ(refused_with("GET / HTTP/1.1\r\nHost: x\r\na:\r\nb:\r\nc:\r\n\r\n"), 0);
}

TEST(HttpParser, TellsWhoWaitsForContinue) {
  Parser parser = parsed(post("Content-Length: 5\r\nExpect: 100-Continue\r\n", ""));
  EXPECT_TRUE(parser.wants_continue());
  EXPECT_FALSE(parser.wants_continue());
  EXPECT_EQ(refused_with(post("Content-Length: 5\r\nExpect: more\r\n", "")), 417);
  Parser old = parsed("POST / HTTP/1.0\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_EQ(old.state(), State::reading);
  EXPECT_FALSE(old.wants_continue()) << "HTTP/1.0 knows no such answer";
}

TEST(HttpParser, AnAnnouncedLengthTakesNoMemory) {
  Parser parser = parsed(post("Content-Length: 1000000000\r\n", "x"), {.body_bytes = 2000000000});
  EXPECT_EQ(parser.state(), State::reading);
  EXPECT_LT(parser.held(), 1000U);
}

TEST(HttpParser, HoldsTheMemoryThatItSays) {
  Parser parser = parsed(post("Content-Length: 1000000\r\n", ""), {.body_bytes = 1000000});
  for (size_t sent = 0; sent < 1000000; sent += 1000) {
    EXPECT_GE(parser.held(), parser.request().body.size());
    EXPECT_LE(parser.held(), std::max<size_t>(2 * sent, 1000));
    parser.take(std::string(1000, 'x'));
    EXPECT_EQ(parser.held(), parser.request().body.capacity());
  }
  EXPECT_EQ(parser.state(), State::complete);
  EXPECT_EQ(parser.held(), 1000000U) << "no memory beside the body itself";
}

TEST(HttpParser, ChunksTakeNoMoreMemoryThanTheLimit) {
  Parser parser = parsed(post("Transfer-Encoding: chunked\r\n", ""), {.body_bytes = 1000000});
  for (int i = 0; i < 999; ++i) parser.take("3e8\r\n" + std::string(1000, 'x') + "\r\n");
  EXPECT_EQ(parser.request().body.size(), 999000U);
  EXPECT_LE(parser.held(), 1000000U) << "with the lines between them";
}

TEST(HttpParser, DamagedRequestsAreReadOrRefused) {
  const std::string good = post("Transfer-Encoding: chunked\r\nA: b\r\n", "5\r\nhello\r\n0\r\n\r\n");
  std::mt19937 random(7);
  for (int i = 0; i < 20000; ++i) {
    std::string bytes = good;
    for (int change = 0; change < 3; ++change) bytes[random() % bytes.size()] = static_cast<char>(random() % 256);
    Parser parser(kSmall);
    EXPECT_LE(parser.take(bytes), bytes.size());
    EXPECT_LE(parser.request().body.size(), kSmall.body_bytes);
  }
}

TEST(HttpMessage, WritesAnswers) {
  Response response{.status = 503, .type = "text/plain", .body = "no\n", .headers = {{"Retry-After", "1"}}};
  EXPECT_EQ(to_bytes(response, {.keep_alive = true}),
            "HTTP/1.1 503 Service Unavailable\r\nDate: Thu, 01 Jan 1970 00:00:00 GMT\r\nContent-Type: "
            "text/plain\r\nContent-Length: 3\r\n"
            "Connection: keep-alive\r\nRetry-After: 1\r\n\r\nno\n");
  EXPECT_THAT(to_bytes(response, {.without_body = true}), testing::EndsWith("Retry-After: 1\r\n\r\n"));
  EXPECT_EQ(error_response({400, "x", "", ""}, "say \"\xff\"").body,
            R"({"error":{"code":"x","message":"say \"\\xff\""}})"
            "\n");
}

TEST(HttpMessage, DatesAreThoseOfTheStandard) {
  EXPECT_EQ(http_date(784111777), "Sun, 06 Nov 1994 08:49:37 GMT");
  EXPECT_EQ(http_date(0), "Thu, 01 Jan 1970 00:00:00 GMT");
}

}  // namespace
}  // namespace trireme::http
