#include "trireme/io/checkpoint_folder.h"

#include <torch/torch.h>

#include <algorithm>
#include <cctype>
#include <cerrno>

#include "trireme/core/durable.h"
#include "trireme/core/error.h"
#include "trireme/core/file.h"
#include "trireme/core/log.h"
#include "trireme/core/text.h"

namespace trireme::io {
namespace fs = std::filesystem;
namespace {

constexpr const char* kManifest = "manifest.json";
constexpr const char* kExtension = ".safetensors";
constexpr int64_t kUnknown = std::numeric_limits<int64_t>::max();  // a manifest that cannot be read may be the newest

std::map<std::string, std::string> file_metadata() {
  return {{"format", "pt"}};
}

void check_name(const std::string& name, const char* what) {
  const bool plain = std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_' || c == '-' || c == '.';
  });
  if (plain && !name.empty() && name.front() != '.' && !name.ends_with(DurableFolder::kPrevious)) return;
  throw UsageError("'{}' cannot name {}: use letters, digits, '_', '-' and '.', no '.' in front, no {} behind",
                   printable(name), what, DurableFolder::kPrevious);
}

bool is_numbered(std::string_view name) {
  if (name.ends_with(DurableFolder::kPrevious)) name.remove_suffix(std::string_view(DurableFolder::kPrevious).size());
  return !name.empty() && std::isdigit(static_cast<unsigned char>(name.back())) != 0;
}

// Whether a sub-folder is or was a checkpoint; others (logs) are left alone.
bool is_checkpoint(const fs::path& folder) {
  if (folder.filename().string().starts_with('.')) return false;
  std::error_code ignored;
  if (fs::exists(folder / kManifest, ignored)) return true;
  for (const auto& entry : fs::directory_iterator(folder, ignored))
    if (entry.path().extension() == kExtension) return true;
  return false;
}

Manifest read_manifest(const fs::path& folder) {
  const fs::path path = folder / kManifest;
  const auto text = read_file(path);
  if (!text) throw UsageError("{} is missing or cannot be read", path.string());
  return parse_manifest(*text, path.string());
}

void check_file(const fs::path& path, const FileSum& promised) {
  std::error_code absent;
  if (!fs::exists(path, absent)) throw UsageError("{} is missing ({})", path.string(), absent.message());
  check_sum(path, promised, "its manifest");
}

Snapshot read_snapshot(const fs::path& folder, Manifest manifest) {
  Snapshot snapshot{.manifest = std::move(manifest)};
  for (const ManifestFile& file : snapshot.manifest.files) {
    check_name(file.name, "a file of a checkpoint");
    check_file(folder / file.name, file.sum);
    snapshot.tensors.emplace(fs::path(file.name).stem().string(), load_safetensors(folder / file.name));
  }
  snapshot.manifest.name = folder.filename().string();  // it may have become NAME.previous
  return snapshot;
}

void make_folder(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) throw SystemError(error.value(), "cannot make the folder {} for checkpoints", path.string());
}

TensorMap copy_of(const TensorMap& tensors) {
  TensorMap copy;
  copy.reserve(tensors.size());
  for (const auto& item : tensors) {
    const torch::Tensor& tensor = item.value();
    const bool moves = tensor.defined() && !tensor.is_cpu();
    copy.insert(item.key(), !tensor.defined() ? tensor : moves ? tensor.detach().cpu() : tensor.detach().clone());
  }
  return copy;
}

}  // namespace

struct CheckpointFolder::Found {
  std::string name;
  std::optional<Manifest> manifest = {};
  std::string reason = {};  // why there is no manifest
  int64_t sequence() const { return manifest ? manifest->sequence : kUnknown; }
};

Snapshot copy_of(const Snapshot& snapshot) {
  Snapshot copy{.manifest = snapshot.manifest};
  for (const auto& [group, tensors] : snapshot.tensors) copy.tensors.emplace(group, copy_of(tensors));
  return copy;
}

CheckpointFolder::CheckpointFolder(fs::path path, CheckpointFolderOptions options)
    : path_(std::move(path)), options_(options) {
  if (options_.keep < 0 || options_.keep == 1)
    throw UsageError(
        "checkpoints in {}: keep = {}, but at least 2 must be kept (0: all), so that one is whole when "
        "another is damaged",
        path_.string(), options_.keep);
}

// All checkpoints, newest first.
std::vector<CheckpointFolder::Found> CheckpointFolder::find() const {
  std::vector<Found> found;
  std::error_code error;
  const bool there = fs::exists(path_, error);
  if (error) throw SystemError(error.value(), "cannot look for checkpoints in {}", path_.string());
  if (!there) return found;
  for (const auto& entry : fs::directory_iterator(path_, error)) {
    if (!entry.is_directory() || !is_checkpoint(entry.path())) continue;
    Found& one = found.emplace_back(Found{.name = entry.path().filename().string()});
    try {
      one.manifest = read_manifest(entry.path());
      one.manifest->name = one.name;
    } catch (const Error& reason) {
      one.reason = reason.what();
    }
  }
  if (error) throw SystemError(error.value(), "cannot look for checkpoints in {}", path_.string());
  std::sort(found.begin(), found.end(), [](const Found& a, const Found& b) {
    return std::pair(a.sequence(), a.name) > std::pair(b.sequence(), b.name);
  });
  return found;
}

std::vector<Manifest> CheckpointFolder::list() const {
  std::vector<Manifest> manifests;
  for (Found& found : find())
    if (found.manifest) manifests.push_back(std::move(*found.manifest));
  return manifests;
}

void CheckpointFolder::write(const std::string& name, const Snapshot& snapshot) const {
  CheckpointWriter writer(*this, name, snapshot.manifest);
  for (const auto& [group, tensors] : snapshot.tensors) writer.write(group, tensors);
  writer.commit();
}

struct CheckpointWriter::Parts {
  Parts(const CheckpointFolder& in, Manifest of, const std::string& besides)
      : folder(in), manifest(std::move(of)), kept(besides), written(in.path(), manifest.name, {.kept = besides}) {}

  CheckpointFolder folder;
  Manifest manifest;
  std::string kept;
  DurableFolder written;
  std::string group;  // whose file is open
  std::optional<TensorFile> file;
};

CheckpointWriter::CheckpointWriter(const CheckpointFolder& folder, const std::string& name, Manifest manifest) {
  check_name(name, "a checkpoint");
  make_folder(folder.path());
  remove_leftovers(folder.path());
  const auto before = folder.list();
  const std::string kept =
      before.empty() ? "there is no checkpoint yet" : fmt::format("checkpoint {} is kept", before.front().name);
  manifest.name = name;
  manifest.sequence = before.empty() ? 1 : before.front().sequence + 1;
  manifest.files.clear();
  parts_ = std::make_unique<Parts>(folder, std::move(manifest), kept);
}

CheckpointWriter::~CheckpointWriter() = default;

void CheckpointWriter::begin(const std::string& group, const std::vector<TensorLayout>& tensors) {
  end_file();
  check_name(group, "a group of tensors");
  parts_->group = group;
  parts_->file.emplace(parts_->written.path() / (group + kExtension), tensors, file_metadata(), parts_->kept);
}

void CheckpointWriter::write(const torch::Tensor& tensor) {
  parts_->file.value().write(tensor);
}

void CheckpointWriter::write(const std::string& group, const TensorMap& tensors) {
  end_file();
  check_name(group, "a group of tensors");
  const std::string file = group + kExtension;
  parts_->manifest.files.push_back(
      {file, save_safetensors(parts_->written.path() / file, tensors, file_metadata(), parts_->kept)});
}

void CheckpointWriter::end_file() {
  if (!parts_->file) return;
  parts_->manifest.files.push_back({parts_->group + kExtension, parts_->file->commit()});
  parts_->file.reset();
}

void CheckpointWriter::commit() {
  end_file();
  const std::string text = to_json(parts_->manifest);
  DurableFile file(parts_->written.path() / kManifest, {.bytes_needed = text.size(), .kept = parts_->kept});
  file.write(text);
  file.commit();
  parts_->written.commit();
  parts_->folder.prune();
}

void CheckpointFolder::set_state(const std::string& name, const std::map<std::string, std::string>& texts) const {
  Manifest manifest = read_manifest(path_ / name);
  for (const auto& [key, text] : texts) manifest.state[key] = text;
  write_file_atomically(path_ / name / kManifest, to_json(manifest));
}

// The new checkpoint is whole: what cannot be removed is a matter for the log, not for an error.
void CheckpointFolder::prune() const {
  if (options_.keep == 0) return;
  int numbered = 0;
  for (const Manifest& manifest : list())
    if (is_numbered(manifest.name) && ++numbered > options_.keep && !remove_folder(path_ / manifest.name))
      log_warning("[io] cannot remove the old checkpoint {}: {}", (path_ / manifest.name).string(), errno_text(errno));
}

std::optional<Snapshot> CheckpointFolder::read_newest(const std::string& but) const {
  std::vector<std::string> reasons;
  for (const Found& found : find()) {
    if (!but.empty() && (found.name == but || found.name == but + DurableFolder::kPrevious)) continue;
    try {
      if (!found.manifest) throw UsageError("{}", found.reason);
      return read_snapshot(path_ / found.name, *found.manifest);
    } catch (const Error& error) {
      log_warning("[io] checkpoint {} is skipped: {}", found.name, error.what());
      reasons.push_back(fmt::format("\n  {}: {}", found.name, error.what()));
    }
  }
  if (reasons.empty()) return std::nullopt;
  throw UsageError(
      "{}: none of the {} checkpoints can be used; bring one back or name another folder, or remove them to "
      "start from scratch:{}",
      path_.string(), reasons.size(), join(reasons, ""));
}

Snapshot CheckpointFolder::read(const std::string& name) const {
  const fs::path folder = path_ / name;
  if (fs::is_directory(folder)) return read_snapshot(folder, read_manifest(folder));
  std::vector<std::string> names;
  for (const Manifest& manifest : list()) names.push_back(manifest.name);
  throw UsageError("no checkpoint {} in {}; there {}", name, path_.string(),
                   names.empty() ? "is none" : "are " + join(names, ", "));
}

}  // namespace trireme::io
