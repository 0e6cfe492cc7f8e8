// One client's connection: its bytes, what it is doing, and by when. Internal to Loop, whose thread owns it.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <string_view>

#include "trireme/core/clock.h"
#include "trireme/core/deadline.h"
#include "trireme/core/fd.h"
#include "trireme/core/http/parser.h"

namespace trireme::http {

struct Connection {
  enum class State {
    reading,    // a request, or the wait for the next one
    working,    // a worker has the request
    writing,    // the answer
    lingering,  // the answer is sent; closing with unread input would destroy it, so input is read and dropped
  };

  Connection(UniqueFd socket, const Limits& limits) : fd(std::move(socket)), parser(limits) {}

  /// No byte of the next request has arrived.
  bool idle() const { return state == State::reading && !parser.begun(); }

  /// The client closed the connection while its request was at work.
  bool has_left() const { return state == State::working && abandoned && *abandoned; }

  enum class Io { more, blocked, ended };
  /// Reads what is there into the parser (and, when that has a whole request, into `ahead`).
  Io read_some();
  /// Sends what is left of `out`.
  Io write_some();
  /// Reads and forgets.
  Io discard();
  /// A fresh parser; the memory of the old one is free.
  void forget_request(const Limits& limits);
  /// Gives the bytes that were sent ahead to a fresh parser.
  void next_request(const Limits& limits);
  void feed(std::string_view bytes);
  /// Sends "100 Continue" if the client waits for it: 25 bytes into an empty buffer, which cannot block.
  void send_continue();
  /// Tells a client that has closed from one that is only done with sending, by the first bytes of the answer, which
  /// are the same for all: a closed one refuses them, and poll(2) then reports POLLHUP.
  void probe();
  size_t held() const { return parser.held() + heap_bytes(ahead) + heap_bytes(out); }

  UniqueFd fd;
  Parser parser;
  State state = State::reading;
  Deadline deadline = Deadline::never();
  bool keep_alive = false;      // after the answer
  bool without_body = false;    // the answer to HEAD
  bool fresh = true;            // has had no request yet
  bool late = false;            // the request began while the server was draining
  Clock::time_point arrived{};  // the whole request
  size_t counted = 0;           // of held(), in the loop's sum
  std::string ahead;            // bytes of the next request
  std::string out;
  size_t written = 0;
  bool probed = false;                           // at work: the start of the answer has been sent
  size_t sent_early = 0;                         // by probe(), of the answer
  std::shared_ptr<std::atomic<bool>> abandoned;  // shared with the request at work
};

}  // namespace trireme::http
