// A folder of checkpoints, of which at least one is whole whatever happens while another is written.
//
//   CheckpointFolder folder("output", {.keep = 2});
//   folder.write("step_000500", {{.model = "ResNet50", .step = 500}, {{"model", state_dict(*net)}}});
//   if (auto newest = folder.read_newest()) load_into(*net, newest->tensors.at("model"));
//
// A checkpoint is a sub-folder: one safetensors file per group of tensors, and manifest.json with their checksums. It
// is written under a hidden name, flushed to the disk and renamed: killed, out of space or out of power, the ones
// before are untouched, and the half-written one is never taken for real; the next write removes it.
//
// Of the numbered names (step_000500, epoch_3) the `keep` newest stay, older ones are removed after the new one is
// whole. Other names (latest, best_model) stay; what such a name held before stays as NAME.previous. One process writes
// to a folder (rank 0); any may read.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/io/format/manifest.h"
#include "trireme/io/safetensors.h"

namespace trireme::io {

/// What a checkpoint holds. Each group of tensors is a file of its own: "model" is model.safetensors.
struct Snapshot {
  Manifest manifest = {};
  std::map<std::string, TensorMap> tensors = {};
};

/// The same on the CPU with memory of its own: it does not change as training goes on.
Snapshot copy_of(const Snapshot& snapshot);

struct CheckpointFolderOptions {
  int keep = 2;  ///< numbered checkpoints to keep, at least 2; 0: all
};

class CheckpointFolder {
 public:
  /// The folder itself is made by the first write. Throws UsageError for keep = 1.
  explicit CheckpointFolder(std::filesystem::path path, CheckpointFolderOptions options = {});

  /// Throws SystemError when the disk refuses: it names the file, the bytes needed and the checkpoint that is still
  /// there; UsageError for a name with anything but letters, digits, '_', '-' and '.'.
  void write(const std::string& name, const Snapshot& snapshot) const;

  /// Replaces texts in Manifest::state of a checkpoint that is there, all of them or none: for what became known after
  /// it was written. Throws UsageError when there is none of that name, SystemError when the disk refuses.
  void set_state(const std::string& name, const std::map<std::string, std::string>& texts) const;

  /// The newest checkpoint that is whole: each file has the size and the checksum of the manifest. A damaged one is
  /// skipped with a warning in the log. Nothing when there is none at all; UsageError with the reason for each when
  /// all are damaged; SystemError when the folder cannot be looked into. One named `but` does not count, nor its
  /// previous one.
  std::optional<Snapshot> read_newest(const std::string& but = "") const;
  /// One by its name. Throws UsageError with the reason when it is absent or damaged.
  Snapshot read(const std::string& name) const;

  /// The manifests that can be read, newest first. Looks at no tensor file.
  std::vector<Manifest> list() const;
  const std::filesystem::path& path() const { return path_; }

 private:
  friend class CheckpointWriter;
  struct Found;
  std::vector<Found> find() const;
  void prune() const;

  std::filesystem::path path_;
  CheckpointFolderOptions options_;
};

/// One checkpoint, written tensor by tensor. Before commit() nothing has happened; throws as CheckpointFolder::write().
class CheckpointWriter {
 public:
  CheckpointWriter(const CheckpointFolder& folder, const std::string& name, Manifest manifest);
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  /// Begins the file of a group, the one before being complete; its tensors follow by writing_order().
  void begin(const std::string& group, const std::vector<TensorLayout>& tensors);
  void write(const torch::Tensor& tensor);
  /// A whole file.
  void write(const std::string& group, const TensorMap& tensors);
  void commit();

 private:
  void end_file();

  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace trireme::io
