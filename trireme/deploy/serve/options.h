// The command line of `trireme serve`.
//
//   const ParsedOptions parsed = parse_options({"--model-dir", "inference", "--port", "8080"});
//   if (parsed.help) print(help(*parsed.help));
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/core/clock.h"
#include "trireme/core/http/server.h"
#include "trireme/deploy/infer/predictor.h"
#include "trireme/deploy/serve/service.h"

namespace trireme::serve {

struct ServeOptions {
  std::filesystem::path model_dir = {};
  std::string host = "127.0.0.1";
  uint16_t port = 8080;
  std::filesystem::path port_file = {};  ///< gets the port once the server listens
  infer::PredictorOptions predictor = {};
  ServiceOptions service = {};
  http::ServerOptions server = {};
  Clock::duration drain_delay{};  ///< from SIGTERM until the port closes; not ready meanwhile
  Clock::duration drain_timeout = std::chrono::seconds(30);
};

struct ParsedOptions {
  ServeOptions options;
  std::optional<std::string> help;  ///< --help: its topic, for help(); then nothing was checked
};

/// Throws UsageError.
ParsedOptions parse_options(const std::vector<std::string>& words);

/// "" is the overview; "errors" and "--markdown" are the tables of docs/serve.md.
std::string help(std::string_view topic = "");

}  // namespace trireme::serve
