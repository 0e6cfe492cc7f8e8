// One HTTP request and one answer, as values. Nothing here knows a socket.
//
//   const Response response = error_response(problem("bad_chunk"), "a chunk is longer than it says");
//   send(to_bytes(response, {.keep_alive = request.keep_alive}));
#pragma once

#include <atomic>
#include <cstddef>
#include <ctime>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trireme/core/clock.h"
#include "trireme/core/http/problem.h"

namespace trireme::http {

using Headers = std::vector<std::pair<std::string, std::string>>;

/// How busy the server is.
struct Counts {
  size_t connections = 0;
  size_t in_flight = 0;  ///< whole requests that are not answered yet
  size_t abandoned = 0;  ///< of these, those whose client has left
  bool draining = false;
};

struct Request {
  std::string method = {};  ///< "POST"
  std::string path = {};    ///< "/v1/predict", without the query
  std::string query;        ///< "topk=3"
  Headers headers;          ///< names in small letters, values without spaces around them
  std::string body;
  bool keep_alive = true;  ///< the client would like to send another one on this connection
  bool late = false;       ///< it began after the server was told to stop
  Clock::time_point arrived{};
  Counts server{};  ///< when it arrived, itself included
  /// Set by the server when the client closes the connection before its answer; see client_has_left().
  std::shared_ptr<const std::atomic<bool>> abandoned{};

  /// The first value of a header, or "".
  std::string_view header(std::string_view lower_case_name) const;
  /// Nobody waits for the answer any more: a handler with much to do asks this before each part of it.
  bool client_has_left() const { return abandoned && *abandoned; }
  /// What stands behind each `name=` in the query; "" for a mere `name`. Nothing is decoded.
  std::vector<std::string_view> parameters(std::string_view name) const;
};

struct Response {
  int status = 200;
  std::string type = "application/json";
  std::string body;
  Headers headers{};
};

/// {"error": {"code": …, "message": …}}; bytes of the message that are not UTF-8 are shown as \xNN. A 503 has the
/// header Retry-After.
Response error_response(const Problem& problem, std::string_view message);

struct Ending {
  bool keep_alive = false;
  bool without_body = false;  ///< an answer to HEAD
  std::time_t now = 0;        ///< for the header Date
};
/// What the bytes of every answer begin with.
inline constexpr std::string_view kAnswerStart = "HTTP/1.1 ";
std::string to_bytes(const Response& response, Ending ending);

/// "Sun, 06 Nov 1994 08:49:37 GMT" (RFC 9110, 5.6.7), whatever the locale.
std::string http_date(std::time_t time);

/// "Not Found"
const char* reason_phrase(int status);

}  // namespace trireme::http
