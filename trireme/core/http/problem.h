// Everything a server can refuse a request for. The tables are the only source: an answer takes its status and code
// from them, a code that they lack does not compile, and pages for readers are made of them.
//
//   return error_response(problem("bad_chunk"), "a chunk is longer than it says");     // message.h
//
// A program adds a table of its own beside kProblems and looks up with find_problem().
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string_view>

namespace trireme::http {

struct Problem {
  int status;
  std::string_view code;  ///< for programs
  std::string_view when;  ///< for readers
  std::string_view next;  ///< what to do about it
};

template <size_t N>
consteval const Problem& find_problem(const Problem (&table)[N], std::string_view code) {
  for (const Problem& problem : table)
    if (problem.code == code) return problem;
  throw std::logic_error("the table has no such code");  // at compile time
}

/// What this module refuses by itself.
inline constexpr Problem kProblems[] = {
    {400, "not_http", "the first line is not that of an HTTP request, or the client speaks TLS",
     "send `METHOD /path HTTP/1.1`; `http://`, not `https://`"},
    {400, "bad_header", "a header is not of the form `NAME: VALUE`, `Host` is missing, or two lengths are given",
     "send each once, in lines that end in CR LF"},
    {400, "bad_chunk", "a chunk of the body is not as long as it says", "send `Content-Length` instead of chunks"},
    {408, "request_timeout", "the request did not arrive in time", "send faster, or less"},
    {411, "length_required", "a POST with neither `Content-Length` nor chunks", "send one of them"},
    {413, "body_too_large", "the body is larger than this server takes, in chunks too", "send less in a request"},
    {417, "bad_expectation", "an `Expect` other than `100-continue`", "leave it out"},
    {431, "header_too_large", "request line and headers have more than 16 KiB", "send a shorter URL and fewer headers"},
    {431, "too_many_headers", "more than 100 headers", "send fewer"},
    {499, "client_left", "the client closed the connection before its answer; only /metrics shows it",
     "wait for the answer"},
    {500, "internal_error", "the server failed", "read the server's log"},
    {501, "bad_transfer_encoding", "a `Transfer-Encoding` other than `chunked`", "send the body as it is"},
    {503, "overloaded", "too many requests wait, or too many bytes are being received",
     "retry after `Retry-After` seconds"},
    {505, "bad_version", "neither HTTP/1.1 nor HTTP/1.0", "use HTTP/1.1"},
};

consteval const Problem& problem(std::string_view code) {
  return find_problem(kProblems, code);
}

}  // namespace trireme::http
