// manifest.json of a checkpoint: what it is, and the size and checksum of each of its files. Needs no libtorch.
//
//   Manifest manifest{.model = "ResNet50", .step = 5000, .epoch = 3, .state = {{"sampler", to_text(sampler.state())}}};
//   manifest == parse_manifest(to_json(manifest), "manifest.json")
//
// The text carries a checksum of itself, so that any damage is detected.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/core/file_sum.h"

namespace trireme::io {

struct ManifestFile {
  std::string name;  ///< model.safetensors
  FileSum sum;
  bool operator==(const ManifestFile&) const = default;
};

struct Manifest {
  std::string model = {};      ///< name of the network, as models::create() takes it
  std::string optimizer = {};  ///< "Adam"
  int64_t step = 0;            ///< optimizer steps taken
  int64_t epoch = 0;
  int64_t world_size = 1;
  std::string config = {};                        ///< the training program's configuration, as text
  std::map<std::string, std::string> state = {};  ///< anything else, as text: the sampler's, metrics, JSON

  // Filled in by CheckpointFolder::write().
  std::string name = {};
  int64_t sequence = 0;  ///< a later checkpoint of the folder has a higher one; clocks are not used
  std::vector<ManifestFile> files = {};

  bool operator==(const Manifest&) const = default;
};

/// Throws UsageError when a text is not UTF-8.
std::string to_json(const Manifest& manifest);
/// The reverse. `file` is its name for messages. Throws UsageError that names what is wrong.
Manifest parse_manifest(std::string_view text, const std::string& file);

}  // namespace trireme::io
