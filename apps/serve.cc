// `trireme serve --model-dir DIR --port N`
#include <malloc.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <optional>

#include "trireme/core/error.h"
#include "trireme/core/file.h"
#include "trireme/core/log.h"
#include "trireme/core/net.h"
#include "trireme/http/server.h"
#include "trireme/infer/predictor.h"
#include "trireme/proc/signals.h"
#include "trireme/serve/options.h"
#include "trireme/serve/service.h"

namespace trireme::apps {
namespace {

constexpr int kSignalled = 128;  // as a shell tells of a signal
constexpr int kUnanswered = 1;
constexpr Millis kImpatience{100};  // a second signal sooner than this is part of the first: timeout(1) sends two

/// Each of the many threads would else keep the memory of its largest picture for itself.
void share_memory_between_threads() {
  ::mallopt(M_ARENA_MAX, 2);
  ::mallopt(M_MMAP_THRESHOLD, 1 << 20);  // a fixed one: what is large goes back to the system at once
}

/// The next signal, or nothing: the server has stopped, or the time is up.
std::optional<int> next_signal(proc::SignalGate& gate, const http::Server& server, Deadline deadline) {
  while (true) {
    if (const auto number = gate.take()) return number;
    if (deadline.passed()) return std::nullopt;
    pollfd stopped{server.stopped_fd(), POLLIN, 0};
    const Millis left = deadline.left();
    const timespec wait{left.count() / 1000, left.count() % 1000 * 1000000};
    if (::ppoll(&stopped, 1, deadline.is_never() ? nullptr : &wait, gate.open()) > 0) return std::nullopt;
  }
}

/// Until the server has stopped or the time is up. A signal that comes later than the first one's echoes cuts it short.
std::optional<int> wait_drained(proc::SignalGate& gate, const http::Server& server, Deadline deadline) {
  const Deadline echoes = Deadline::in(kImpatience);
  while (const auto number = next_signal(gate, server, deadline))
    if (echoes.passed()) return number;
  return std::nullopt;
}

/// The process ends here: nothing may wait for an engine that hangs.
[[noreturn]] void leave(int code) {
  std::fflush(nullptr);
  ::_exit(code);
}

int drain(proc::SignalGate& gate, http::Server& server, const serve::ServeOptions& options, int number) {
  const double seconds = std::chrono::duration<double>(options.drain_timeout).count();
  log_info("[serve] SIG{}: no more connections; {} requests are in flight and have {:.3g} s", ::sigabbrev_np(number),
           server.counts().in_flight, seconds);
  server.drain();
  if (const auto second = wait_drained(gate, server, Deadline::in(options.drain_timeout))) leave(kSignalled + *second);
  if (server.wait(Deadline::in(Millis(0)))) {
    log_info("[serve] all requests are answered");
    return 0;
  }
  log_error("[serve] {} requests were not answered within {:.3g} s (--drain-timeout)", server.counts().in_flight,
            seconds);
  leave(kUnanswered);
}

int serve_model(const serve::ServeOptions& options) {
  share_memory_between_threads();
  proc::SignalGate gate;  // before the first thread
  UniqueFd listener = listen_tcp(options.host, options.port);
  const infer::Predictor predictor(options.model_dir, options.predictor);
  serve::Service service(predictor, options.service);
  http::Server server(
      std::move(listener), options.server, [&](http::Request& request) { return service.handle(request); },
      [&](int status, double seconds) { service.metrics().count_request(status, seconds); });
  if (!options.port_file.empty())
    write_file_atomically(options.port_file, std::to_string(server.port()) + "\n", {.durable = false});
  fmt::print("serving {} on http://{} ({}, batches of up to {})\n", predictor.model_name(),
             to_string(Endpoint{options.host, server.port()}), predictor.engine_name(), options.service.max_batch);
  std::fflush(stdout);
  if (const auto number = next_signal(gate, server, Deadline::never())) return drain(gate, server, options, *number);
  throw std::runtime_error("the HTTP server stopped; the log says why");
}

int run(const std::vector<std::string>& words) {
  if (words == std::vector<std::string>{"--markdown"}) {  // for docs/serve.md
    fmt::print("{}", serve::options_markdown());
    return 0;
  }
  if (const auto options = serve::parse_options(words)) return serve_model(*options);
  fmt::print("{}", serve::help());
  return 0;
}

}  // namespace
}  // namespace trireme::apps

int main(int argc, char** argv) {
  try {
    return trireme::apps::run({argv + 1, argv + argc});
  } catch (const trireme::Error& error) {
    fmt::print(stderr, "trireme: error: {}\n", error.what());
    return error.exit_code();
  } catch (const std::exception& error) {
    fmt::print(stderr, "trireme: internal error: {}\nThis is a defect of Trireme; please report it.\n", error.what());
    return 70;
  }
}
