#include "trireme/deploy/serve/models.h"

#include <algorithm>
#include <functional>
#include <system_error>
#include <thread>

#include "trireme/core/error.h"
#include "trireme/core/log.h"
#include "trireme/core/text.h"

namespace trireme::serve {
namespace {

namespace fs = std::filesystem;

/// By name.
std::vector<fs::path> entries_of(const fs::path& folder, std::error_code& failed) {
  std::vector<fs::path> found;
  for (fs::directory_iterator entry(folder, failed), end; !failed && entry != end; entry.increment(failed))
    found.push_back(entry->path());
  std::sort(found.begin(), found.end());
  return found;
}

/// Not what cannot be looked at: that counts as there, so that loading it says why.
bool is_missing(const fs::path& path) {
  std::error_code ignored;
  return fs::status(path, ignored).type() == fs::file_type::not_found;
}

bool has_export_at_work(const fs::path& folder) {
  std::error_code ignored;
  const std::vector<fs::path> entries = entries_of(folder, ignored);
  return std::any_of(entries.begin(), entries.end(), [](const fs::path& entry) {
    return entry.filename().string().starts_with(bundle::kStagingPrefix);
  });
}

/// A folder that `trireme export` is writing to, or was when it was killed, is a model too: one that cannot be loaded
/// now, so that a reload keeps the old one. An export that ends meanwhile is not missed in this order, as it puts the
/// description there first.
bool is_model(const fs::path& folder) {
  return has_export_at_work(folder) || !is_missing(folder / bundle::kDescriptionFile);
}

ModelSource source_of(std::string name, const fs::path& folder, const infer::PredictorOptions& options) {
  return {std::move(name), [=] { return infer::Predictor(folder, options); }};
}

/// Whether a model may be there: in a folder, and in what cannot be looked at. The system's own folder on a disk is
/// closed to most users and never a model.
bool may_hold_model(const fs::path& path) {
  const std::string name = path.filename().string();
  if (name.starts_with('.') || name == "lost+found") return false;
  std::error_code ignored;
  const fs::file_type type = fs::status(path, ignored).type();
  return type == fs::file_type::directory || type == fs::file_type::none;
}

/// None: there is no such folder. Throws SystemError.
std::vector<fs::path> folders_in(const fs::path& folder) {
  std::error_code failed;
  std::vector<fs::path> found = entries_of(folder, failed);
  if (failed && failed != std::errc::no_such_file_or_directory && failed != std::errc::not_a_directory)
    throw SystemError(failed.value(), "cannot read the folder {}", printable(folder.string()));
  std::erase_if(found, std::not_fn(may_hold_model));
  return found;
}

}  // namespace

std::vector<ModelSource> models_in(const fs::path& folder, const infer::PredictorOptions& options) {
  std::vector<ModelSource> models;
  if (!is_model(folder)) {
    for (const fs::path& inner : folders_in(folder)) {
      if (is_model(inner))
        models.push_back(source_of(inner.filename().string(), inner, options));
      else
        log_warning("[serve] {}: skipped, as it has no {}", printable(inner.string()), bundle::kDescriptionFile);
    }
  }
  // A folder without any model is left to the predictor, which says what is missing.
  if (models.empty()) models.push_back(source_of("", folder, options));
  return models;
}

Models::Models(Find find, Load load) : find_(std::move(find)), load_(std::move(load)) {
  for (const ModelSource& source : find_()) {
    const std::shared_ptr<Model> model = load_(source);
    models_[model->name()] = model;
  }
}

std::shared_ptr<Model> Models::find(std::string_view name) const {
  std::lock_guard lock(mutex_);
  const auto found = models_.find(name);
  return found == models_.end() ? nullptr : found->second;
}

std::shared_ptr<Model> Models::only() const {
  std::lock_guard lock(mutex_);
  return models_.size() == 1 ? models_.begin()->second : nullptr;
}

std::vector<std::string> Models::names() const {
  std::lock_guard lock(mutex_);
  std::vector<std::string> names;
  for (const auto& [name, model] : models_) names.push_back(name);
  return names;
}

size_t Models::waiting() const {
  std::lock_guard lock(mutex_);
  size_t sum = 0;
  for (const auto& [name, model] : models_) sum += model->waiting();
  return sum;
}

bool Models::reload(Clock::duration patience) {
  ByName old, next;
  {
    std::lock_guard lock(mutex_);
    old = models_;
  }
  bool all = true;
  try {
    for (const ModelSource& source : find_()) all = load_again(source, old, next) && all;
  } catch (const std::exception& error) {
    log_error("[serve] reload: all models stay as they were: {}", error.what());
    return false;
  }
  if (!next.empty()) change_over(old, next);
  old.clear();
  next.clear();
  end_retired(patience);
  return all;
}

bool Models::load_again(const ModelSource& source, const ByName& old, ByName& next) const {
  const auto before = source.name.empty() && old.size() == 1 ? old.begin() : old.find(source.name);
  try {
    const std::shared_ptr<Model> model = load_(source);
    next[model->name()] = model;
    return true;
  } catch (const std::exception& error) {
    if (before != old.end()) next.insert(*before);
    const std::string kept = before != old.end()   ? printable(before->first) + " stays as it was"
                             : source.name.empty() ? "all models stay as they were"
                                                   : printable(source.name) + " is left out";
    log_error("[serve] reload: {}: {}", kept, error.what());
    return false;
  }
}

/// Whoever reads in the log that a model is loaded is answered by it.
void Models::change_over(const ByName& old, const ByName& next) {
  {
    std::lock_guard lock(mutex_);
    models_ = next;
  }
  for (const auto& [name, model] : next) {
    const auto before = old.find(name);
    if (before == old.end())
      log_info("[serve] reload: {} is loaded", printable(name));
    else if (before->second != model)
      log_info("[serve] reload: {} is loaded again", printable(name));
  }
  for (const auto& [name, model] : old) {
    const auto now = next.find(name);
    if (now == next.end()) log_info("[serve] reload: {} is gone", printable(name));
    if (now == next.end() || now->second != model) retired_.push_back(model);
  }
}

/// Here, as the end of an engine takes time, which a request must not pay for. One that still computes what its caller
/// has given up is left for the next reload: its end would wait for it.
void Models::end_retired(Clock::duration patience) {
  constexpr Millis kPause{10};
  const Deadline deadline = Deadline::in(patience);
  while (true) {
    std::erase_if(retired_,
                  [](const std::shared_ptr<Model>& model) { return model.use_count() == 1 && model->is_idle(); });
    if (retired_.empty() || deadline.passed()) return;
    std::this_thread::sleep_for(kPause);  // layers: sleep ok, because the last holder of a pointer tells nobody
  }
}

}  // namespace trireme::serve
