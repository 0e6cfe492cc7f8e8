#include "trireme/launch/nodes/introduction.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "trireme/core/env.h"
#include "trireme/core/error.h"
#include "trireme/core/file.h"
#include "trireme/core/text.h"
#include "trireme/core/token.h"
#include "trireme/core/version.h"
#include "trireme/core/whole_numbers.h"
#include "trireme/launch/worker_environment.h"

namespace trireme::launch {

using nlohmann::json;

namespace {

constexpr size_t kMaxDigested = 64u << 20;

std::string digest_of(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return {};
  const auto content = read_head(path, kMaxDigested + 1);
  return content && content->size() <= kMaxDigested ? to_hex(sha256(*content)) : std::string();
}

// Variables of the workers that must be the same everywhere: ranks that move bytes in different ways, or of which only
// some compare their calls, wait for each other for ever.
constexpr const char* kCommonVariables[] = {"TRIREME_BACKEND", "TRIREME_CHECK"};

std::map<std::string, std::string> common_settings(const Request& request) {
  std::map<std::string, std::string> settings;
  const Environment inherited = env::all();
  for (const char* name : kCommonVariables) settings[name] = users_setting(request, inherited, name).value_or("");
  return settings;
}

std::string setting_text(const std::string& name, const std::string& value) {
  return value.empty() ? fmt::format("{} unset", name) : fmt::format("{}={}", name, printable(value));
}

std::string quoted(const std::vector<std::string>& words) {
  return printable(join(words, " "));
}

}  // namespace

Introduction introduce(const Request& request, const NodeInfo& info, const std::string& name) {
  Introduction self{.info = info, .name = name, .version = kVersion, .arguments = request.command};
  for (const std::string& argument : request.command) {
    const std::string digest = digest_of(argument);
    if (!digest.empty()) self.file_digests[argument] = digest;
  }
  self.settings = common_settings(request);
  return self;
}

std::vector<std::string> differences(const Introduction& first, const Introduction& other) {
  std::vector<std::string> lines;
  const std::string& host = other.info.host;
  if (first.version != other.version)
    lines.push_back(fmt::format("{} runs Trireme {}, {} runs {}", first.info.host, first.version, host, other.version));
  if (first.arguments != other.arguments)
    lines.push_back(fmt::format("{} starts \"{}\", {} starts \"{}\"", first.info.host, quoted(first.arguments), host,
                                quoted(other.arguments)));
  for (const auto& [file, digest] : first.file_digests) {
    const auto found = other.file_digests.find(file);
    if (found != other.file_digests.end() && found->second != digest)
      lines.push_back(fmt::format("{} differs between {} (sha256 {:.12}…) and {} ({:.12}…)", printable(file),
                                  first.info.host, digest, host, found->second));
  }
  return lines;
}

std::vector<std::string> contradictions(const Introduction& first, const Introduction& other) {
  std::vector<std::string> lines;
  for (const auto& [name, value] : first.settings) {
    const auto found = other.settings.find(name);
    if (found != other.settings.end() && found->second != value)
      lines.push_back(fmt::format("{} has {}, but {} has {}; set it alike on every node, or give --env {}=… everywhere",
                                  first.info.host, setting_text(name, value), other.info.host,
                                  setting_text(name, found->second), name));
  }
  return lines;
}

std::string to_json(const Introduction& introduction) {
  json digests = json::object();
  for (const auto& [file, digest] : introduction.file_digests) digests[to_hex(file)] = digest;
  json arguments = json::array();
  for (const std::string& argument : introduction.arguments) arguments.push_back(to_hex(argument));  // may not be UTF-8
  json settings = json::object();
  for (const auto& [name, value] : introduction.settings) settings[name] = to_hex(value);
  return json{{"info", to_json(introduction.info)},
              {"name", introduction.name},
              {"version", introduction.version},
              {"arguments", arguments},
              {"digests", digests},
              {"settings", settings},
              {"attempt", introduction.attempt},
              {"restarts", introduction.restarts},
              {"probe", to_string(introduction.probe)}}
      .dump();
}

Introduction introduction_from_json(const std::string& text) {
  try {
    const json value = json::parse(text);
    require_whole_numbers(value, json{{"attempt", 0}, {"restarts", 0}});
    Introduction result;
    result.info = node_from_json(value.at("info").get<std::string>());
    result.name = value.at("name").get<std::string>();
    result.version = value.at("version").get<std::string>();
    result.attempt = value.at("attempt").get<int>();
    result.restarts = value.at("restarts").get<int>();
    for (const auto& argument : value.at("arguments"))
      result.arguments.push_back(from_hex(argument.get<std::string>()));
    for (const auto& [file, digest] : value.at("digests").items()) result.file_digests[from_hex(file)] = digest;
    for (const auto& [setting, hex] : value.at("settings").items())
      result.settings[setting] = from_hex(hex.get<std::string>());
    result.probe = parse_endpoint(value.at("probe").get<std::string>(), "a node's probe address");
    return result;
  } catch (const json::exception& error) {
    throw PeerError("a node's introduction cannot be read ({}); do all nodes run the same version of Trireme?",
                    error.what());
  }
}

}  // namespace trireme::launch
