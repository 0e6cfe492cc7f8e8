// `trireme serve --model-dir DIR --port N`
#include <malloc.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <future>
#include <memory>
#include <optional>

#include "cli/run_main.h"
#include "trireme/core/error.h"
#include "trireme/core/fd.h"
#include "trireme/core/log.h"
#include "trireme/core/net.h"
#include "trireme/core/text.h"
#include "trireme/deploy/infer/predictor.h"
#include "trireme/deploy/serve/http/server.h"
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
    if (echoes.passed()) return number;
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

struct Model {
  explicit Model(const serve::ServeOptions& options)
      : predictor(options.model_dir, options.predictor), service(predictor, options.service) {}
  infer::Predictor predictor;
  serve::Service service;
};

std::unique_ptr<Model> make_model(const serve::ServeOptions& options) {
  try {
    return std::make_unique<Model>(options);
  } catch (const serve::TooLittleMemory&) {
    throw;
  } catch (const Error& error) {
    throw Error(kNoModel, error.what());
  }
}

/// On a thread of its own: a signal ends the program at once, however long the engine takes or whether it hangs.
std::unique_ptr<Model> load_model(const serve::ServeOptions& options, proc::SignalGate& gate) {
  FdPair loading = make_pipe();
  auto model = std::async(std::launch::async, [&] {
    const UniqueFd closed_at_the_end = std::move(loading.second);
    return make_model(options);
  });
  if (const auto number = next_signal(gate, loading.first.get(), Deadline::never())) leave(kSignalled + *number);
  return model.get();
}

int serve_model(const serve::ServeOptions& options) {
  share_memory_between_threads();
  proc::SignalGate gate;  // before the first thread
  UniqueFd listener = listen_to(options);
  serve::PortFile port_file(
      options.port_file);  // after listening: a server without its port must not remove the file of another
  const auto model = load_model(options, gate);
  http::Server server(
      std::move(listener), options.server, [&](http::Request& request) { return model->service.handle(request); },
      [&](int status, double seconds) { model->service.metrics().count_request(status, seconds); });
  port_file.write(server.port());
  fmt::print("serving {} on http://{} ({}, batches of up to {})\n", printable(model->predictor.model_name()),
             to_string(Endpoint{options.host, server.port()}), model->predictor.engine_name(),
             options.service.max_batch);
  std::fflush(stdout);
  const auto number = next_signal(gate, server.stopped_fd(), Deadline::never());
  port_file.remove();  // before the port is free for others
  leave(number ? drain(gate, server, options, *number) : kStopped);
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
