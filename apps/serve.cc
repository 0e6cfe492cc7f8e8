// `trireme serve --model-dir DIR --port N`
#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <future>
#include <memory>
#include <optional>

#include "cli/run_main.h"
#include "trireme/core/error.h"
#include "trireme/core/fd.h"
#include "trireme/core/http/server.h"
#include "trireme/core/log.h"
#include "trireme/core/net.h"
#include "trireme/core/text.h"
#include "trireme/core/workers.h"
#include "trireme/deploy/serve/models.h"
#include "trireme/deploy/serve/options.h"
#include "trireme/deploy/serve/port_file.h"
#include "trireme/deploy/serve/service.h"
#include "trireme/proc/signals.h"

namespace trireme::apps {
namespace {

constexpr int kSignalled = 128;  // + signal, as in a shell
constexpr int kUnanswered = 1;
constexpr int kStopped = 70;        // the HTTP server, by a defect; the log says why
constexpr int kNoModel = 1;         // the options were right: as `trireme infer` ends
constexpr Millis kImpatience{100};  // a second signal sooner than this is part of the first: timeout(1) sends two

/// Otherwise each thread would keep the memory of its largest picture.
void share_memory_between_threads() {
  ::mallopt(M_ARENA_MAX, 2);
  ::mallopt(M_MMAP_THRESHOLD, 256 << 10);  // a fixed one: what is large goes back to the system at once
}

/// The next signal, or nothing: `end` is readable, or the time is up.
std::optional<int> next_signal(proc::SignalGate& gate, int end, Deadline deadline) {
  while (true) {
    if (const auto number = gate.take()) return number;
    if (deadline.passed()) return std::nullopt;
    pollfd ended{end, POLLIN, 0};
    const Millis left = deadline.left();
    const timespec wait{left.count() / 1000, left.count() % 1000 * 1000000};
    if (::ppoll(&ended, 1, deadline.is_never() ? nullptr : &wait, gate.open()) > 0) return std::nullopt;
  }
}

/// Waits until the server has stopped or the time is up. A second signal, unless it is an echo of the first, ends the
/// wait.
std::optional<int> wait_drained(proc::SignalGate& gate, const http::Server& server, Deadline deadline) {
  const Deadline echoes = Deadline::in(kImpatience);
  while (const auto number = next_signal(gate, server.stopped_fd(), deadline))
    if (*number != SIGHUP && echoes.passed()) return number;
  return std::nullopt;
}

/// The process ends here, and no destructor runs: nothing may wait for an engine that hangs. Not even for the other
/// streams, as one that a model is read from is locked.
[[noreturn]] void leave(int code) {
  std::fflush(stdout);
  ::_exit(code);
}

/// The exit code.
int drain(proc::SignalGate& gate, http::Server& server, const serve::ServeOptions& options, int number) {
  const double seconds = std::chrono::duration<double>(options.drain_timeout).count();
  log_info("[serve] SIG{}: no more connections; {} requests are in flight and have {:.3g} s", ::sigabbrev_np(number),
           server.counts().in_flight, seconds);
  server.drain();
  if (const auto second = wait_drained(gate, server, Deadline::in(options.drain_timeout))) return kSignalled + *second;
  if (server.wait(Deadline::in(Millis(0)))) {
    log_info("[serve] all requests are answered");
    return 0;
  }
  log_error("[serve] given up after {:.3g} s (--drain-timeout): {} requests in flight, {} connections open", seconds,
            server.counts().in_flight, server.counts().connections);
  return kUnanswered;
}

std::string listen_advice(int number, uint16_t port) {
  switch (number) {
    case EADDRINUSE:
      return fmt::format(
          "; another program has it, which ss -ltnp 'sport = :{}' names; choose one by --port, 0: any free", port);
    case EACCES:
      return "; ports below 1024 are for root; choose one by --port, 0: any free";
    case EADDRNOTAVAIL:
      return "; --host is an address of this machine, or 0.0.0.0 for all it has";
    default:
      return "";
  }
}

UniqueFd listen_to(const serve::ServeOptions& options) {
  try {
    return listen_tcp(options.host, options.port);
  } catch (const SystemError& error) {
    throw Error(error.exit_code(), error.what() + listen_advice(error.number(), options.port));
  }
}

std::unique_ptr<serve::Service> make_service(const serve::ServeOptions& options) {
  try {
    const auto find = [&options] { return serve::models_in(options.model_dir, options.predictor); };
    return std::make_unique<serve::Service>(find, options.service);
  } catch (const serve::TooLittleMemory&) {
    throw;
  } catch (const Error& error) {
    throw Error(kNoModel, error.what());
  }
}

/// On a thread of its own: a signal ends the program at once, however long the engine takes or whether it hangs.
std::unique_ptr<serve::Service> load_models(const serve::ServeOptions& options, proc::SignalGate& gate) {
  FdPair loading = make_pipe();
  auto service = std::async(std::launch::async, [&] {
    const UniqueFd closed_at_the_end = std::move(loading.second);
    return make_service(options);
  });
  while (const auto number = next_signal(gate, loading.first.get(), Deadline::never()))
    if (*number != SIGHUP) leave(kSignalled + *number);
  return service.get();
}

/// Loads the models again on a thread of its own: the server goes on meanwhile, even if an engine hangs. Calls that come
/// during a reload are answered by one more.
class Reloader {
 public:
  explicit Reloader(serve::Service& service) : service_(service) {}
  void ask() {
    ++pending_;
    worker_.run([this] {
      if (pending_.exchange(0) > 0) service_.reload();
    });
  }

 private:
  serve::Service& service_;
  std::atomic<int> pending_{0};
  Workers worker_{1, "the reload of models"};
};

/// The signal that ends the server, or nothing: it has stopped by itself. SIGHUP reloads.
std::optional<int> wait_for_end(proc::SignalGate& gate, const http::Server& server, Reloader& reloader) {
  while (const auto number = next_signal(gate, server.stopped_fd(), Deadline::never())) {
    if (*number != SIGHUP) return number;
    reloader.ask();
  }
  return std::nullopt;
}

void print_greeting(const serve::Service& service, const serve::ServeOptions& options, uint16_t port) {
  const std::vector<std::string> names = service.models().names();
  const std::string engine = service.models().find(names.at(0))->predictor().engine_name();
  fmt::print("serving {} on http://{} ({}, batches of up to {})\n", printable(join(names, ", ")),
             to_string(Endpoint{options.host, port}), engine, options.service.max_batch);
  std::fflush(stdout);
}

/// The time in which load balancers learn that the server is not ready, while it answers as ever. Returns the exit code
/// of a server that ends meanwhile.
std::optional<int> wait_before_drain(proc::SignalGate& gate, const http::Server& server, serve::Service& service,
                                     const serve::ServeOptions& options, int number) {
  if (options.drain_delay == Clock::duration(0)) return std::nullopt;
  service.retire();
  log_info("[serve] SIG{}: not ready any more; the port stays open for {:.3g} s (--drain-delay)",
           ::sigabbrev_np(number), std::chrono::duration<double>(options.drain_delay).count());
  if (const auto second = wait_drained(gate, server, Deadline::in(options.drain_delay))) return kSignalled + *second;
  return server.wait(Deadline::in(Millis(0))) ? std::optional(kStopped) : std::nullopt;
}

int serve_model(const serve::ServeOptions& options) {
  share_memory_between_threads();
  proc::SignalGate gate;  // before the first thread
  UniqueFd listener = listen_to(options);
  serve::PortFile port_file(
      options.port_file);  // after listening: a server without its port must not remove the file of another
  const auto service = load_models(options, gate);
  http::Server server(
      std::move(listener), options.server, [&](http::Request& request) { return service->handle(request); },
      [&](int status, double seconds) { service->metrics().count_request(status, seconds); });
  port_file.write(server.port());
  print_greeting(*service, options, server.port());
  Reloader reloader(*service);
  const auto number = wait_for_end(gate, server, reloader);
  const std::optional<int> ended = number ? wait_before_drain(gate, server, *service, options, *number) : kStopped;
  port_file.remove();  // before the port is free for others
  leave(ended ? *ended : drain(gate, server, options, *number));
}

int run(const std::vector<std::string>& words) {
  const serve::ParsedOptions parsed = serve::parse_options(words);
  if (!parsed.help) return serve_model(parsed.options);
  fmt::print("{}", serve::help(*parsed.help));
  return 0;
}

}  // namespace
}  // namespace trireme::apps

int main(int argc, char** argv) {
  return trireme::run_main([&] { return trireme::apps::run({argv + 1, argv + argc}); });
}
