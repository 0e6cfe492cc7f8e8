#include "trireme/trainer/saver.h"

#include <torch/torch.h>

#include <cmath>

#include "trireme/config/number.h"
#include "trireme/core/error.h"
#include "trireme/core/log.h"
#include "trireme/core/text.h"
#include "trireme/trainer/config_changes.h"

namespace trireme::trainer {
namespace {

constexpr const char* kBest = "best_model";
constexpr const char* kNone = "none";
constexpr size_t kShownChanges = 10;

double number(const std::string& text) {
  const auto value = config::evaluate(text);
  if (!value) throw UsageError("the checkpoint's manifest has '{}' where a number should be", text);
  return *value;
}

ExtraState iteration(Standing& standing) {
  return {"iter", [&standing] { return fmt::format("{}", standing.iter); },
          [&standing](const std::string& text) { standing.iter = static_cast<int64_t>(number(text)); }};
}

std::string best_text(const std::optional<double>& best) {
  return best && std::isfinite(*best) ? fmt::format("{}", *best) : kNone;
}

// What is not finite was the best of nothing.
std::optional<double> parse_best(const std::string& text) {
  if (text == kNone || text.ends_with("nan") || text.ends_with("inf")) return std::nullopt;
  const double value = number(text);
  return std::isfinite(value) ? std::optional(value) : std::nullopt;
}

ExtraState best(Standing& standing) {
  return {"best", [&standing] { return best_text(standing.best); },
          [&standing](const std::string& text) { standing.best = parse_best(text); }};
}

TrainingState state_of(const Trained& trained, Standing& standing) {
  TrainingState state{.model = trained.updater.module(),
                      .optimizer = trained.updater.optimizer(),
                      .loader = trained.batches.loader(),
                      .ema = trained.updater.ema(),
                      .masters = trained.updater.masters(),
                      .extra = {iteration(standing), best(standing), {"scaler", trained.updater.scaler()}}};
  if (data::Loader* unlabelled = trained.batches.unlabelled_loader())
    state.extra.emplace_back(
        "unlabelled", [unlabelled] { return to_text(unlabelled->state()); },
        [unlabelled](const std::string& text) { unlabelled->load_state(data::parse_sampler_state(text)); });
  return state;
}

/// A checkpoint by its path: the folder it lies in, and its name.
struct Named {
  explicit Named(const std::filesystem::path& path) {
    const std::filesystem::path whole = path.has_filename() ? path : path.parent_path();
    folder = whole.has_parent_path() ? whole.parent_path() : ".";
    name = whole.filename().string();
  }
  std::filesystem::path folder;
  std::string name;
};

/// The text of the best value in `folder` when best_model is not of a later epoch; or kNone.
std::string saved_best(const std::filesystem::path& folder, int64_t epoch) {
  for (const io::Manifest& manifest : io::CheckpointFolder(folder).list()) {
    const auto found = manifest.state.find("extra.best");
    if (manifest.name == kBest && manifest.epoch <= epoch && found != manifest.state.end()) return found->second;
  }
  return kNone;
}

void warn_of_changes(const Restored& restored, const std::string& config) {
  std::vector<std::string> changes = config_changes(restored.config, config);
  if (changes.empty()) return;
  const size_t all = changes.size();
  if (all > kShownChanges) changes.resize(kShownChanges);
  log_warning("{} was saved with another configuration: {}{}", restored.name, join(changes, "; "),
              all > kShownChanges ? fmt::format(" and {} more", all - kShownChanges) : "");
}

}  // namespace

std::filesystem::path output_folder(const config::TrainConfig& config) {
  return std::filesystem::path(config.global.output_dir) / config.arch.name;
}

Saver::Saver(const config::TrainConfig& config, const Ranks& ranks)
    : ranks_(ranks),
      folder_(output_folder(config)),
      config_(config.to_text()),
      checkpoint_(folder_, ranks.group(), {.keep = 0, .not_resumed = kBest}) {
  checkpoint_.set_config(config_);
}

void Saver::save(const std::string& name, const Standing& standing, const Trained& trained) {
  Standing now = standing;
  checkpoint_.save_as(name, state_of(trained, now), standing);
  log_info("saved {}", (folder_ / name).string());
}

// A checkpoint of an epoch is saved before its evaluation, which may have found the best so far.
std::optional<double> Saver::best_until(const Standing& standing, const std::filesystem::path& folder) const {
  std::string text;
  ranks_.on_main([&] { text = saved_best(folder, standing.epoch); });
  const std::optional<double> saved = parse_best(ranks_.from_main(text));
  return saved ? saved : standing.best;
}

std::optional<Standing> Saver::restore(const std::string& from, const Trained& trained) {
  Standing standing;
  const TrainingState state = state_of(trained, standing);
  const bool newest = from == "auto";
  const Named named(from);
  const Restored restored =
      newest ? checkpoint_.restore(state) : Checkpoint(named.folder, ranks_.group()).restore_from(named.name, state);
  if (!restored) return std::nullopt;
  if (ranks_.is_main()) warn_of_changes(restored, config_);
  static_cast<Progress&>(standing) = restored;
  standing.best = best_until(standing, newest ? folder_ : named.folder);
  return standing;
}

}  // namespace trireme::trainer
