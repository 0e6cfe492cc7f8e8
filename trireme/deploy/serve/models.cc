#include "trireme/deploy/serve/models.h"

#include <algorithm>
#include <thread>

#include "trireme/core/error.h"
#include "trireme/core/log.h"
#include "trireme/core/text.h"

namespace trireme::serve {
namespace {

namespace fs = std::filesystem;

bool is_model(const fs::path& folder) {
  std::error_code ignored;
  return fs::exists(folder / bundle::kDescriptionFile, ignored);
}

ModelSource source_of(std::string name, const fs::path& folder, const infer::PredictorOptions& options) {
  return {std::move(name), [=] { return infer::Predictor(folder, options); }};
}

std::vector<fs::path> folders_in(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code failed;
  for (fs::directory_iterator entry(folder, failed), end; !failed && entry != end; entry.increment(failed))
    if (std::error_code ignored; entry->is_directory(ignored)) found.push_back(entry->path());
  std::sort(found.begin(), found.end());
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
  old.clear();
  if (!next.empty()) change_over(std::move(next));
  end_retired(patience);
  return all;
}

bool Models::load_again(const ModelSource& source, const ByName& old, ByName& next) const {
  const auto before = source.name.empty() && old.size() == 1 ? old.begin() : old.find(source.name);
  try {
    const std::shared_ptr<Model> model = load_(source);
    next[model->name()] = model;
    log_info("[serve] reload: {} is loaded{}", printable(model->name()), before == old.end() ? "" : " again");
    return true;
  } catch (const std::exception& error) {
    if (before != old.end()) next.insert(*before);
    log_error("[serve] reload: {} {}: {}", printable(before == old.end() ? source.name : before->first),
              before == old.end() ? "is left out" : "stays as it was", error.what());
    return false;
  }
}

void Models::change_over(ByName next) {
  std::lock_guard lock(mutex_);
  models_.swap(next);
  for (const auto& [name, model] : next) {
    const auto now = models_.find(name);
    if (now == models_.end()) log_info("[serve] reload: {} is gone", printable(name));
    if (now == models_.end() || now->second != model) retired_.push_back(model);
  }
}

/// Here, as the end of an engine takes time, which a request must not pay for.
void Models::end_retired(Clock::duration patience) {
  constexpr Millis kPause{10};
  const Deadline deadline = Deadline::in(patience);
  while (true) {
    std::erase_if(retired_, [](const std::shared_ptr<Model>& model) { return model.use_count() == 1; });
    if (retired_.empty() || deadline.passed()) return;
    std::this_thread::sleep_for(kPause);  // layers: sleep ok, because the last holder of a pointer tells nobody
  }
}

}  // namespace trireme::serve
