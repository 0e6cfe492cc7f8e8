#include "trireme/io/format/manifest.h"

#include <nlohmann/json.hpp>

#include "trireme/core/crc32c.h"
#include "trireme/core/error.h"
#include "trireme/core/text.h"

namespace trireme::io {

using nlohmann::json;

// How the library turns these into JSON and back; it finds them by their types.
void to_json(json& to, const ManifestFile& from) {
  to = {{"name", from.name}, {"bytes", from.sum.bytes}, {"crc32c", from.sum.crc32c}};
}
void from_json(const json& from, ManifestFile& to) {
  to = {from.at("name"), {from.at("bytes").get<uint64_t>(), from.at("crc32c").get<uint32_t>()}};
}
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Manifest, name, sequence, model, step, optimizer, epoch, files, world_size, config,
                                   state)

namespace {

constexpr int kFormat = 1;

std::string sum_text(uint32_t sum) {
  return fmt::format("{:08x}", sum);
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
  const json content = manifest;
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
    return root.at("content").get<Manifest>();
  } catch (const json::exception& error) {
    throw UsageError("{}: not a checkpoint manifest, or damaged: {}", file, printable(error.what()));
  }
}

}  // namespace trireme::io
