#include "trireme/serve/options.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <functional>
#include <thread>

#include "trireme/core/error.h"
#include "trireme/core/text.h"

namespace trireme::serve {
namespace {

// --- values

int64_t number(const std::string& name, const std::string& text, int64_t low, int64_t high) {
  const auto value = parse_int(text, low, high);
  if (!value) throw UsageError("{} {}: expected a whole number from {} to {}", name, printable(text), low, high);
  return *value;
}

/// The number before one of the units, and the unit's factor; a bare number has the first unit.
struct Unit {
  const char* name;
  double factor;
};

double quantity(const std::string& name, const std::string& text, const std::vector<Unit>& units, const char* example) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const std::string rest = to_lower({end, text.data() + text.size()});
  for (const Unit& unit : units)
    if (error == std::errc() && value >= 0 && (rest == unit.name || (rest.empty() && &unit == units.data())))
      return value * unit.factor;
  throw UsageError("{} {}: expected something like {}", name, printable(text), example);
}

Clock::duration time(const std::string& name, const std::string& text) {
  constexpr double kLongest = 1e6;
  const double seconds = quantity(name, text, {{"s", 1}, {"ms", 1e-3}, {"m", 60}, {"h", 3600}}, "30, 30s, 500ms or 2m");
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(std::min(seconds, kLongest)));
}

size_t bytes(const std::string& name, const std::string& text) {
  constexpr double kMost = 1e12;
  const double value =
      quantity(name, text, {{"", 1}, {"k", 1 << 10}, {"m", 1 << 20}, {"g", 1 << 30}}, "16M, 512K or 1000000");
  if (value < 1 || value > kMost) throw UsageError("{} {}: expected 1 byte to 1 TB", name, printable(text));
  return static_cast<size_t>(value);
}

bool truth(const std::string& name, const std::string& text) {
  const std::string lower = to_lower(text);
  if (lower == "true" || lower == "1") return true;
  if (lower == "false" || lower == "0") return false;
  throw UsageError("{} {}: expected True or False", name, printable(text));
}

// --- the table

struct Option {
  const char* name;
  const char* value;
  const char* meaning;
  void (*set)(ServeOptions& options, const std::string& name, const std::string& text);
};

using Options = ServeOptions;
using Text = const std::string&;

constexpr Option kOptions[] = {
    {"--model-dir", "DIR", "what `trireme export` wrote; required", [](Options& o, Text, Text t) { o.model_dir = t; }},
    {"--host", "ADDRESS", "address to listen on; 0.0.0.0 lets other machines in (default: 127.0.0.1)",
     [](Options& o, Text n, Text t) {
       if (t.empty()) throw UsageError("{} is empty; 127.0.0.1 is this machine alone, 0.0.0.0 lets others in", n);
       o.host = t;
     }},
    {"--port", "N", "0: a free one, which is printed (default: 8080)",
     [](Options& o, Text n, Text t) { o.port = static_cast<uint16_t>(number(n, t, 0, 65535)); }},
    {"--port-file", "FILE", "gets the port once the server listens", [](Options& o, Text, Text t) { o.port_file = t; }},
    {"--engine", "NAME", "openvino or torch (default: openvino on a CPU, torch on a GPU)",
     [](Options& o, Text, Text t) { o.predictor.engine = infer::parse_engine(t); }},
    {"--use-gpu", "True|False", "(default: False)",
     [](Options& o, Text n, Text t) { o.predictor.use_gpu = truth(n, t); }},
    {"--gpu-id", "N", "(default: 0)",
     [](Options& o, Text n, Text t) { o.predictor.gpu_id = static_cast<int>(number(n, t, 0, 1023)); }},
    {"--precision", "NAME", "fp32, bf16 or fp16 (default: fp32)",
     [](Options& o, Text, Text t) { o.predictor.precision = infer::parse_precision(t); }},
    {"--cpu-threads", "N", "threads of the engine (default: all)",
     [](Options& o, Text n, Text t) { o.predictor.cpu_threads = static_cast<int>(number(n, t, 0, 1024)); }},
    {"--topk", "K", "classes in an answer that asks for no number (default: as the model says)",
     [](Options& o, Text n, Text t) { o.predictor.topk = static_cast<int>(number(n, t, 1, 1 << 20)); }},
    {"--batch-size", "N", "most pictures in a batch (default: 8)",
     [](Options& o, Text n, Text t) { o.service.max_batch = static_cast<size_t>(number(n, t, 1, 4096)); }},
    {"--batch-wait-ms", "N", "how long a busy engine waits for a fuller batch (default: 2)",
     [](Options& o, Text n, Text t) { o.service.batch_wait = Millis(number(n, t, 0, 60000)); }},
    {"--queue", "N", "most pictures that wait for the engine; then 503 (default: 256)",
     [](Options& o, Text n, Text t) { o.service.max_queue = static_cast<size_t>(number(n, t, 1, 1 << 20)); }},
    {"--images-per-request", "N", "most pictures in one request (default: 64)",
     [](Options& o, Text n, Text t) { o.service.images_per_request = static_cast<size_t>(number(n, t, 1, 1 << 20)); }},
    {"--max-pixels", "N", "most pixels of a picture (default: 33554432)",
     [](Options& o, Text n, Text t) { o.service.max_pixels = number(n, t, 1, int64_t{1} << 31); }},
    {"--decode-memory", "BYTES", "most bytes of the pictures that are being decoded; others wait (default: 1G)",
     [](Options& o, Text n, Text t) { o.service.decode_bytes = bytes(n, t); }},
    {"--body-limit", "BYTES", "most bytes of a request, like 16M (default: 16M)",
     [](Options& o, Text n, Text t) { o.server.limits.body_bytes = bytes(n, t); }},
    {"--memory-limit", "BYTES", "most bytes of all requests together; then 503 (default: 256M)",
     [](Options& o, Text n, Text t) { o.server.max_held_bytes = bytes(n, t); }},
    {"--workers", "N", "threads that decode pictures (default: two batches and one for each core)",
     [](Options& o, Text n, Text t) { o.server.workers = static_cast<int>(number(n, t, 1, 1024)); }},
    {"--max-connections", "N", "(default: 512)",
     [](Options& o, Text n, Text t) { o.server.max_connections = static_cast<size_t>(number(n, t, 1, 100000)); }},
    {"--request-timeout", "TIME", "from a whole request to its answer; then 504 (default: 30s)",
     [](Options& o, Text n, Text t) { o.service.request_timeout = time(n, t); }},
    {"--read-timeout", "TIME", "for a whole request to arrive; then 408 (default: 30s)",
     [](Options& o, Text n, Text t) { o.server.read_timeout = time(n, t); }},
    {"--idle-timeout", "TIME", "how long a connection may be silent (default: 60s)",
     [](Options& o, Text n, Text t) { o.server.idle_timeout = time(n, t); }},
    {"--drain-timeout", "TIME", "for the requests in flight after SIGTERM (default: 30s)",
     [](Options& o, Text n, Text t) { o.drain_timeout = time(n, t); }},
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
  constexpr size_t kMost = 64;
  const size_t batches = 2 * options.service.max_batch;
  return static_cast<int>(std::min(kMost, batches) + std::max(1U, std::thread::hardware_concurrency()));
}

void check(const ServeOptions& options) {
  if (options.model_dir.empty()) throw UsageError("which model? trireme serve --model-dir DIR");
  if (options.service.images_per_request > options.service.max_queue)
    throw UsageError("--images-per-request {} is more than --queue {} can hold", options.service.images_per_request,
                     options.service.max_queue);
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
    option.set(options, name, equals == std::string::npos ? words[++at] : word.substr(equals + 1));
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
