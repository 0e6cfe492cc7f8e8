#include "trireme/deploy/serve/options.h"

#include <algorithm>
#include <iterator>
#include <thread>

#include "trireme/core/error.h"
#include "trireme/core/option_help.h"
#include "trireme/core/options.h"
#include "trireme/deploy/infer/options.h"
#include "trireme/deploy/serve/problems.h"

namespace trireme::serve {
namespace {

/// No time at all would refuse everything.
Clock::duration patience(const Given& given) {
  const Millis time = duration_value(given);
  if (time < Millis(1)) throw UsageError("{}: must be a time from 1ms to 30 days", given.shown());
  return time;
}

std::string host_value(const Given& given) {
  if (given.text.empty())
    throw UsageError("{} is empty; 127.0.0.1 is this machine alone, 0.0.0.0 lets others in", given.source);
  return given.text;
}

Millis millis_value(const Given& given) {
  return Millis(int_value(given, 0, 60000));
}

/// From `low`, which messages show as a text, on.
auto bytes_from(size_t low, const char* shown) {
  return [=](const Given& given) {
    const size_t bytes = bytes_value(given);
    if (bytes < low) throw UsageError("{}: must be from {} to 1024G", given.shown(), shown);
    return bytes;
  };
}

std::vector<Option> listening_options(ServeOptions& o) {
  return {{{"--model-dir"}, "DIR", "an exported model, or a folder of several; required", text_into(o.model_dir)},
          {{"--host"},
           "ADDRESS",
           "address to listen on; 0.0.0.0 lets other machines in (default: 127.0.0.1)",
           into(o.host, host_value)},
          {{"--port"}, "N", "0: a free one, which is printed (default: 8080)", into(o.port, int_in(0, 65535))},
          {{"--port-file"},
           "FILE",
           "gets the port once the server is ready; an old one is removed at the start",
           text_into(o.port_file)}};
}

std::vector<Option> batch_options(ServiceOptions& o) {
  constexpr int kMany = 1 << 20;
  return {
      {{"--batch-size"}, "N", "most pictures in a batch (default: 8)", into(o.max_batch, int_in(1, 4096))},
      {{"--batch-wait-ms"},
       "N",
       "how long a busy engine waits for a fuller batch (default: 2)",
       into(o.batch_wait, millis_value)},
      {{"--queue"},
       "N",
       "most pictures that wait for the engine, and most requests for a worker; then 503 (default: 256)",
       into(o.max_queue, int_in(1, kMany))},
      {{"--images-per-request"},
       "N",
       "most pictures in one request (default: 64)",
       into(o.images_per_request, int_in(1, kMany))},
      {{"--max-pixels"}, "N", "most pixels of a picture (default: 33554432)", into(o.max_pixels, int_in(1, INT32_MAX))},
      {{"--decode-memory"},
       "BYTES",
       "most bytes of the pictures that are decoded or wait for the engine; others wait (default: 1G)",
       into(o.decode_bytes, bytes_from(1 << 20, "1M"))}};
}

std::vector<Option> server_options(http::ServerOptions& o) {
  return {{{"--body-limit"},
           "BYTES",
           "most bytes of a request, like 16M; then 413 (default: 16M)",
           into(o.limits.body_bytes, bytes_from(1 << 10, "1K"))},
          {{"--memory-limit"},
           "BYTES",
           "most bytes of all requests together; then 503 (default: 256M)",
           into(o.max_held_bytes, bytes_value)},
          {{"--workers"},
           "N",
           "threads that decode pictures (default: two batches and one for each core)",
           into(o.workers, int_in(1, 1024))},
          {{"--max-connections"},
           "N",
           "most connections at a time (default: 512)",
           into(o.max_connections, int_in(1, 100000))}};
}

std::vector<Option> time_options(ServeOptions& o) {
  return {{{"--request-timeout"},
           "TIME",
           "from a whole request to its answer; then 504 (default: 30s)",
           into(o.service.request_timeout, patience)},
          {{"--read-timeout"},
           "TIME",
           "for a whole request to arrive; then 408 (default: 30s)",
           into(o.server.read_timeout, patience)},
          {{"--idle-timeout"},
           "TIME",
           "how long a connection may be silent (default: 60s)",
           into(o.server.idle_timeout, patience)},
          {{"--drain-delay"},
           "TIME",
           "after SIGTERM: not ready, but still answering, before the port closes (default: 0)",
           into(o.drain_delay, duration_value)},
          {{"--drain-timeout"},
           "TIME",
           "for the requests in flight after SIGTERM (default: 30s)",
           into(o.drain_timeout, patience)}};
}

CommandSyntax syntax_of(ServeOptions& options) {
  CommandSyntax syntax{
      .command = "trireme serve",
      .usage = "--model-dir DIR [options]",
      .about =
          "Answers HTTP requests with the predictions of an exported model. Pictures of several requests are\n"
          "computed together.\n",
      .notes =
          "examples\n"
          "  trireme serve --model-dir inference --port 8080\n"
          "  curl --data-binary @cat.jpg -H 'Content-Type: image/jpeg' http://127.0.0.1:8080/v1/predict\n"
          "  curl http://127.0.0.1:8080/healthz        (also: /metrics, /docs, /v2 for KServe's protocol)\n"
          "\nSIGTERM and Ctrl-C answer what is in flight, then end; a second one ends at once; SIGHUP reloads.\n"
          "`trireme help serve errors` lists the refusals.\n"};
  for (const auto& part : {listening_options(options), infer::predictor_options(options.predictor),
                           batch_options(options.service), server_options(options.server), time_options(options)})
    syntax.options.insert(syntax.options.end(), part.begin(), part.end());
  return syntax;
}

/// A worker waits while its picture is in a batch: two batches' worth, so that one fills while the other runs.
int default_workers(const ServeOptions& options) {
  constexpr size_t kMaxDecoding = 64;
  const size_t batches = 2 * options.service.max_batch;
  return static_cast<int>(std::min(kMaxDecoding, batches) + std::max(1U, std::thread::hardware_concurrency()));
}

void check(const ServeOptions& options) {
  if (options.model_dir.empty()) throw UsageError("which model? trireme serve --model-dir DIR");
  infer::check_predictor_options(options.predictor);
  const size_t together = std::min(options.service.images_per_request, options.service.max_batch);
  if (together > options.service.max_queue)
    throw UsageError(
        "--queue {} is too short: {} pictures of one request may wait together; raise it, or lower --batch-size or "
        "--images-per-request",
        options.service.max_queue, together);
  if (options.server.max_held_bytes < options.server.limits.body_bytes)
    throw UsageError("--memory-limit {} is less than the --body-limit {} of one request", options.server.max_held_bytes,
                     options.server.limits.body_bytes);
}

/// The refusals of HTTP and of the service, as docs/serve.md shows them.
std::string problems_markdown() {
  std::vector<http::Problem> all(std::begin(http::kProblems), std::end(http::kProblems));
  all.insert(all.end(), std::begin(kProblems), std::end(kProblems));
  std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.status < b.status; });
  std::string text = "| status | code | when | what to do |\n|---|---|---|---|\n";
  for (const http::Problem& row : all)
    text += fmt::format("| {} | `{}` | {} | {} |\n", row.status, row.code, row.when, row.next);
  return text;
}

}  // namespace

ParsedOptions parse_options(const std::vector<std::string>& words) {
  ParsedOptions parsed;
  ServeOptions& options = parsed.options;
  options.server.workers = 0;
  options.predictor.decode_threads = 1;  // the workers decode
  parsed.help = parse_command_line(syntax_of(options), words).help;
  if (parsed.help) return parsed;
  check(options);
  if (options.server.workers == 0) options.server.workers = default_workers(options);
  options.server.max_waiting = options.service.max_queue;  // a request has one picture or more
  options.server.is_quick = Service::is_quick;
  return parsed;
}

std::string help(std::string_view topic) {
  ServeOptions defaults;
  return topic == "errors" ? problems_markdown() : help_for(syntax_of(defaults), topic);
}

}  // namespace trireme::serve
