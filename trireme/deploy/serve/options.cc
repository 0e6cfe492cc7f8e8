#include "trireme/deploy/serve/options.h"

#include <fmt/core.h>

#include <algorithm>
#include <functional>
#include <thread>

#include "trireme/core/error.h"
#include "trireme/core/option_values.h"
#include "trireme/core/text.h"

namespace trireme::serve {
namespace {

/// No time at all would refuse everything.
Clock::duration patience(const Given& given) {
  const Millis time = duration_value(given);
  if (time < Millis(1)) throw UsageError("{}: must be a time from 1ms to 30 days", given.shown());
  return time;
}

/// `low` in words, too.
size_t bytes_from(const Given& given, size_t low, const char* shown) {
  const size_t bytes = bytes_value(given);
  if (bytes < low) throw UsageError("{}: must be from {} to 1024G", given.shown(), shown);
  return bytes;
}

struct Option {
  const char* name;
  const char* value;
  const char* meaning;
  void (*set)(ServeOptions& options, const Given& given);
};

using Options = ServeOptions;

constexpr Option kOptions[] = {
    {"--model-dir", "DIR", "what `trireme export` wrote; required",
     [](Options& o, const Given& g) { o.model_dir = g.text; }},
    {"--host", "ADDRESS", "address to listen on; 0.0.0.0 lets other machines in (default: 127.0.0.1)",
     [](Options& o, const Given& g) {
       if (g.text.empty())
         throw UsageError("{} is empty; 127.0.0.1 is this machine alone, 0.0.0.0 lets others in", g.source);
       o.host = g.text;
     }},
    {"--port", "N", "0: a free one, which is printed (default: 8080)",
     [](Options& o, const Given& g) { o.port = static_cast<uint16_t>(int_value(g, 0, 65535)); }},
    {"--port-file", "FILE", "gets the port once the server is ready; one from before is removed at the start",
     [](Options& o, const Given& g) { o.port_file = g.text; }},
    {"--engine", "NAME", "openvino or torch (default: openvino on a CPU, torch on a GPU)",
     [](Options& o, const Given& g) { o.predictor.engine = infer::parse_engine(g.text); }},
    {"--use-gpu", "True|False", "(default: False)",
     [](Options& o, const Given& g) { o.predictor.use_gpu = bool_value(g); }},
    {"--gpu-id", "N", "(default: 0)", [](Options& o, const Given& g) { o.predictor.gpu_id = int_value(g, 0, 1023); }},
    {"--precision", "NAME", "fp32, bf16 or fp16 (default: fp32)",
     [](Options& o, const Given& g) { o.predictor.precision = infer::parse_precision(g.text); }},
    {"--cpu-threads", "N", "threads of the engine (default: all)",
     [](Options& o, const Given& g) { o.predictor.cpu_threads = int_value(g, 0, 1024); }},
    {"--topk", "K", "classes in an answer that asks for no number (default: as the model says)",
     [](Options& o, const Given& g) { o.predictor.topk = int_value(g, 1, 1 << 20); }},
    {"--batch-size", "N", "most pictures in a batch (default: 8)",
     [](Options& o, const Given& g) { o.service.max_batch = static_cast<size_t>(int_value(g, 1, 4096)); }},
    {"--batch-wait-ms", "N", "how long a busy engine waits for a fuller batch (default: 2)",
     [](Options& o, const Given& g) { o.service.batch_wait = Millis(int_value(g, 0, 60000)); }},
    {"--queue", "N", "most pictures that wait for the engine, and most requests for a worker; then 503 (default: 256)",
     [](Options& o, const Given& g) { o.service.max_queue = static_cast<size_t>(int_value(g, 1, 1 << 20)); }},
    {"--images-per-request", "N", "most pictures in one request (default: 64)",
     [](Options& o, const Given& g) { o.service.images_per_request = static_cast<size_t>(int_value(g, 1, 1 << 20)); }},
    {"--max-pixels", "N", "most pixels of a picture (default: 33554432)",
     [](Options& o, const Given& g) { o.service.max_pixels = int_value(g, 1, INT32_MAX); }},
    {"--decode-memory", "BYTES",
     "most bytes of the pictures that are decoded or wait for the engine; others wait (default: 1G)",
     [](Options& o, const Given& g) { o.service.decode_bytes = bytes_from(g, 1 << 20, "1M"); }},
    {"--body-limit", "BYTES", "most bytes of a request, like 16M; then 413 (default: 16M)",
     [](Options& o, const Given& g) { o.server.limits.body_bytes = bytes_from(g, 1 << 10, "1K"); }},
    {"--memory-limit", "BYTES", "most bytes of all requests together; then 503 (default: 256M)",
     [](Options& o, const Given& g) { o.server.max_held_bytes = bytes_value(g); }},
    {"--workers", "N", "threads that decode pictures (default: two batches and one for each core)",
     [](Options& o, const Given& g) { o.server.workers = int_value(g, 1, 1024); }},
    {"--max-connections", "N", "(default: 512)",
     [](Options& o, const Given& g) { o.server.max_connections = static_cast<size_t>(int_value(g, 1, 100000)); }},
    {"--request-timeout", "TIME", "from a whole request to its answer; then 504 (default: 30s)",
     [](Options& o, const Given& g) { o.service.request_timeout = patience(g); }},
    {"--read-timeout", "TIME", "for a whole request to arrive; then 408 (default: 30s)",
     [](Options& o, const Given& g) { o.server.read_timeout = patience(g); }},
    {"--idle-timeout", "TIME", "how long a connection may be silent (default: 60s)",
     [](Options& o, const Given& g) { o.server.idle_timeout = patience(g); }},
    {"--drain-timeout", "TIME", "for the requests in flight after SIGTERM (default: 30s)",
     [](Options& o, const Given& g) { o.drain_timeout = patience(g); }},
};

const Option& find(const std::string& word) {
  std::string name = word;
  std::replace(name.begin() + std::min<std::ptrdiff_t>(2, std::ssize(name)), name.end(), '_', '-');
  std::vector<std::string> names;
  for (const Option& option : kOptions) {
    if (name == option.name) return option;
    names.emplace_back(option.name);
  }
  const auto near = closest(name, names);
  throw UsageError("trireme serve has no option {}{} (see: trireme serve --help)", printable(word),
                   near ? fmt::format("; did you mean {}?", *near) : "");
}

/// A worker waits while its picture is in a batch: two batches' worth, so that one fills while the other runs.
int default_workers(const ServeOptions& options) {
  constexpr size_t kMaxDecoding = 64;
  const size_t batches = 2 * options.service.max_batch;
  return static_cast<int>(std::min(kMaxDecoding, batches) + std::max(1U, std::thread::hardware_concurrency()));
}

void check(const ServeOptions& options) {
  if (options.model_dir.empty()) throw UsageError("which model? trireme serve --model-dir DIR");
  if (options.predictor.use_gpu && options.predictor.engine == infer::EngineKind::openvino)
    throw UsageError("--engine openvino computes on the CPU; with --use-gpu True take --engine torch");
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

}  // namespace

std::optional<ServeOptions> parse_options(const std::vector<std::string>& words) {
  ServeOptions options;
  options.server.workers = 0;
  options.predictor.decode_threads = 1;  // ours decode
  for (size_t at = 0; at < words.size(); ++at) {
    const std::string& word = words[at];
    if (word == "-h" || word == "--help") return std::nullopt;
    const size_t equals = word.find('=');
    const std::string name = word.substr(0, equals);
    const Option& option = find(name);
    if (equals == std::string::npos && at + 1 == words.size()) throw UsageError("{} needs a value", name);
    option.set(options, {name, equals == std::string::npos ? words[++at] : word.substr(equals + 1)});
  }
  check(options);
  if (options.server.workers == 0) options.server.workers = default_workers(options);
  options.server.max_waiting = options.service.max_queue;  // a request has one picture or more
  options.server.is_quick = Service::is_quick;
  return options;
}

std::string options_markdown() {
  std::string text = "| option | meaning |\n|---|---|\n";
  for (const Option& option : kOptions) {
    std::string value = option.value;
    if (const size_t bar = value.find('|'); bar != std::string::npos) value.insert(bar, 1, '\\');
    text += fmt::format("| `{}` {} | {} |\n", option.name, value, option.meaning);
  }
  return text;
}

std::string help() {
  std::string text =
      "usage: trireme serve --model-dir DIR [options]\n\n"
      "Answers HTTP requests with the predictions of an exported model. Pictures of several requests are computed\n"
      "together.\n\n";
  for (const Option& option : kOptions)
    text += fmt::format("  {:<30} {}\n", fmt::format("{} {}", option.name, option.value), option.meaning);
  return text +
         "\nrequests\n"
         "  curl --data-binary @cat.jpg -H 'Content-Type: image/jpeg' http://127.0.0.1:8080/v1/predict\n"
         "  curl http://127.0.0.1:8080/healthz\n"
         "  curl http://127.0.0.1:8080/metrics\n\n"
         "SIGTERM and Ctrl-C answer what is in flight, then end; a second one ends at once.\n";
}

}  // namespace trireme::serve
