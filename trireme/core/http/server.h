// A small HTTP/1.1 server: one thread moves the bytes of all connections, a few workers answer whole requests.
//
//   Server server(listen_tcp("127.0.0.1", 8080), {}, [](Request&) { return Response{.body = "hello\n"}; });
//   …
//   server.drain();                                    // SIGTERM: take nothing new, answer what has begun
//   bool all = server.wait(Deadline::in(30s));
//
// A client costs a thread only while its whole request is being answered, so neither slow senders nor idle connections
// can starve the others. Everything is bounded: connections, header, body, all bodies together, the requests that wait
// for a worker, and the time for a request to arrive, for an answer to be taken and for silence.
//
// drain(): connections that were made and requests of which something had come are served as ever; requests that begin
// later on an open connection come to the handler with `late` set; every answer then closes its connection.
// Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <thread>

#include "trireme/core/clock.h"
#include "trireme/core/deadline.h"
#include "trireme/core/fd.h"
#include "trireme/core/http/message.h"
#include "trireme/core/http/parser.h"

namespace trireme::http {

struct ServerOptions {
  int workers = 8;
  size_t max_connections = 512;
  Limits limits{};
  size_t max_waiting = 256;                                  ///< requests while all workers are busy; then 503
  size_t max_held_bytes = size_t{256} << 20;                 ///< of all requests together; more is answered with 503
  Clock::duration read_timeout = std::chrono::seconds(30);   ///< for a whole request to come
  Clock::duration write_timeout = std::chrono::seconds(30);  ///< for a whole answer to be taken
  Clock::duration idle_timeout = std::chrono::seconds(60);   ///< between requests
  /// Requests that the handler answers without waiting: they are answered on the server's own thread, even when all
  /// workers are busy.
  std::function<bool(const Request&)> is_quick{};
};

/// Runs on the workers, and for quick requests on the server's thread. An exception is logged, and answered with 500
/// without its message.
using Handler = std::function<Response(Request&)>;
/// Called before each answer is sent, also for requests that never reached the handler.
using Observer = std::function<void(int status, double seconds)>;

class Loop;

class Server {
 public:
  /// Serves the connections of `listener` (core/net.h).
  Server(UniqueFd listener, const ServerOptions& options, Handler handler, Observer observer = {});
  /// Closes all connections; waits for the requests that workers are answering.
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  uint16_t port() const { return port_; }
  Counts counts() const;
  /// Begins to stop, and returns.
  void drain();
  /// Whether every request was answered by the deadline. Requires drain().
  bool wait(Deadline deadline) const;
  /// Becomes readable when the server has stopped: for poll(2).
  int stopped_fd() const { return stopped_.first.get(); }

 private:
  FdPair stopped_;  // the loop's thread closes the second
  uint16_t port_ = 0;
  std::unique_ptr<Loop> loop_;
  std::thread thread_;
};

}  // namespace trireme::http
