// The command line of `trireme serve`.
//
//   const std::optional<ServeOptions> options = parse_options({"--model-dir", "inference", "--port", "8080"});
//   if (!options) print(help());
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "trireme/deploy/infer/predictor.h"
#include "trireme/deploy/serve/http/server.h"
#include "trireme/deploy/serve/service.h"

namespace trireme::serve {

struct ServeOptions {
  std::filesystem::path model_dir;
  std::string host = "127.0.0.1";
  uint16_t port = 8080;
  std::filesystem::path port_file;  ///< gets the port once the server listens
  infer::PredictorOptions predictor;
  ServiceOptions service;
  http::ServerOptions server;
  Clock::duration drain_timeout = std::chrono::seconds(30);
};

/// Nothing when help is asked for. Hyphens and underscores are one. Throws UsageError.
std::optional<ServeOptions> parse_options(const std::vector<std::string>& words);
std::string help();
/// The options as docs/serve.md shows them.
std::string options_markdown();

}  // namespace trireme::serve
