#include "trireme/io/format/manifest.h"

#include <nlohmann/json.hpp>

#include "trireme/core/crc32c.h"
#include "trireme/core/error.h"
#include "trireme/core/text.h"

namespace trireme::io {
namespace {

using nlohmann::json;

constexpr int kFormat = 1;

std::string sum_text(uint32_t sum) {
  return fmt::format("{:08x}", sum);
}

json content_of(const Manifest& manifest) {
  json files = json::array();
  for (const ManifestFile& file : manifest.files)
    files.push_back({{"name", file.name}, {"bytes", file.sum.bytes}, {"crc32c", file.sum.crc32c}});
  return {{"name", manifest.name},  {"sequence", manifest.sequence},     {"model", manifest.model},
          {"step", manifest.step},  {"optimizer", manifest.optimizer},   {"epoch", manifest.epoch},
          {"files", files},         {"world_size", manifest.world_size}, {"config", manifest.config},
          {"state", manifest.state}};
}

Manifest from_content(const json& content) {
  Manifest manifest;
  content.at("name").get_to(manifest.name);
  content.at("sequence").get_to(manifest.sequence);
  content.at("model").get_to(manifest.model);
  content.at("step").get_to(manifest.step);
  content.at("optimizer").get_to(manifest.optimizer);
  content.at("epoch").get_to(manifest.epoch);
  content.at("world_size").get_to(manifest.world_size);
  content.at("config").get_to(manifest.config);
  content.at("state").get_to(manifest.state);
  for (const json& file : content.at("files"))
    manifest.files.push_back({file.at("name"), {file.at("bytes").get<uint64_t>(), file.at("crc32c").get<uint32_t>()}});
  return manifest;
}

void check_format(const json& root, const std::string& file) {
  const int format = root.at("format");
  if (format != kFormat)
    throw UsageError("{}: it has format {}, but this version reads format {}; read it with the version that wrote it",
                     file, format, kFormat);
  const std::string written = root.at("crc32c");
  const std::string found = sum_text(crc32c(root.at("content").dump()));
  if (found != written)
    throw UsageError("{}: it is damaged: its checksum is {}, but it says {}", file, found, printable(written));
}

}  // namespace

std::string to_json(const Manifest& manifest) {
  const json content = content_of(manifest);
  try {
    const json root = {{"format", kFormat}, {"crc32c", sum_text(crc32c(content.dump()))}, {"content", content}};
    return root.dump(1) + "\n";
  } catch (const json::type_error&) {
    throw UsageError("checkpoint {}: a text of its manifest is not UTF-8; encode it, or store it as a tensor",
                     printable(manifest.name));
  }
}

Manifest parse_manifest(std::string_view text, const std::string& file) {
  try {
    const json root = json::parse(text);
    check_format(root, file);
    return from_content(root.at("content"));
  } catch (const json::exception& error) {
    throw UsageError("{}: not a checkpoint manifest, or damaged: {}", file, printable(error.what()));
  }
}

}  // namespace trireme::io
