// HTTP/1.1 requests out of bytes, as they come: no socket, no clock, nothing unbounded.
//
//   Parser parser({.body_bytes = 16 << 20});
//   size_t used = parser.take(bytes);            // what is left belongs to the next request
//   if (parser.state() == Parser::State::complete) handle(parser.request());
//   if (parser.state() == Parser::State::refused) answer(parser.refusal());
//
// Strict where leniency has let requests be smuggled: lines end in CR LF, a length is given once and not beside
// chunks, header names hold no spaces. Bodies come with Content-Length or in chunks; what a limit forbids is refused
// as soon as it is announced, and what cannot become a request as soon as that shows. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "trireme/core/http/message.h"

namespace trireme::http {

struct Limits {
  size_t header_bytes = 16u << 10;  ///< request line and headers together
  size_t headers = 100;
  size_t body_bytes = 16u << 20;
};

/// What a text takes beside its object: short ones nothing.
inline size_t heap_bytes(const std::string& text) {
  return text.capacity() > std::string().capacity() ? text.capacity() : 0;
}

class Parser {
 public:
  enum class State { reading, complete, refused };

  explicit Parser(Limits limits = {}) : limits_(limits) {}

  /// Reads on and returns how many bytes were used: all, unless the request ended before. None once it is refused.
  size_t take(std::string_view bytes);
  State state() const;
  /// Whether anything of a request is there.
  bool begun() const { return begun_; }
  /// True once for a request that waits for "100 Continue" before it sends its body.
  bool wants_continue();
  /// Memory that the request takes, up to twice the bytes that have come; never more than the body will have.
  size_t held() const { return heap_bytes(line_) + heap_bytes(request_.body); }

  /// Requires: complete, or refused (then what was understood). Valid until the parser is replaced.
  Request& request() { return request_; }
  /// Requires: refused.
  const Response& refusal() const { return refusal_; }

 private:
  enum class Step { head, body, chunk_size, chunk, chunk_end, trailer, complete, refused };

  size_t take_some(std::string_view bytes);
  bool begin(char first);
  size_t take_head(std::string_view bytes);
  size_t take_body(std::string_view bytes);
  void make_room(size_t more);
  size_t take_line(std::string_view bytes);
  bool read_first_line(size_t before);
  void read_head();
  bool read_request_line(std::string_view line);
  bool read_target(std::string_view text);
  bool read_header(std::string_view line);
  size_t count(std::string_view name) const;
  bool choose_body();
  bool check_host();
  bool read_body_length();
  bool read_expectation();
  void read_chunk_size(std::string_view line);
  void end_line(std::string_view line);
  void read_trailer(std::string_view line);
  bool refuse(const Problem& problem, std::string_view message);
  bool refuse_body(uint64_t bytes);

  Limits limits_;
  Step step_ = Step::head;
  bool begun_ = false;
  bool old_ = false;  // HTTP/1.0
  bool wants_continue_ = false;
  std::string line_;       // the head or line that is being collected
  size_t headers_at_ = 0;  // in it; 0: the request line is not whole yet
  uint64_t left_ = 0;      // of the body or chunk
  size_t trailer_bytes_ = 0;
  Request request_;
  Response refusal_;
};

}  // namespace trireme::http
