#include "trireme/train/trainer/saver.h"

#include <torch/torch.h>

#include <algorithm>
#include <cmath>

#include "trireme/config/number.h"
#include "trireme/core/error.h"
#include "trireme/core/log.h"
#include "trireme/core/text.h"
#include "trireme/io/checkpoint_folder.h"
#include "trireme/io/format/manifest.h"
#include "trireme/train/trainer/config_changes.h"

namespace trireme::trainer {
namespace {

constexpr const char* kBest = "best_model";
constexpr const char* kNone = "none";
constexpr const char* kDue = "due";
constexpr size_t kShown = 10;  // checkpoints or changes in a message

double number(const std::string& text) {
  const auto value = config::evaluate(text);
  if (!value) throw UsageError("the checkpoint's manifest has '{}' where a number should be", text);
  return *value;
}

ExtraState iteration(SavedProgress& progress) {
  return {"iter", [&progress] { return fmt::format("{}", progress.iter); },
          [&progress](const std::string& text) { progress.iter = static_cast<int64_t>(number(text)); }};
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

ExtraState best(SavedProgress& progress) {
  return {"best", [&progress] { return best_text(progress.best); },
          [&progress](const std::string& text) { progress.best = parse_best(text); }};
}

ExtraState evaluation(SavedProgress& progress) {
  ExtraState state{"evaluation", [&progress] { return progress.evaluation_due ? kDue : kNone; },
                   [&progress](const std::string& text) {
                     progress.evaluation_due = text == kDue;
                     progress.notes_evaluation = true;
                   }};
  state.required = false;  // older checkpoints do not have it
  return state;
}

/// For people, and for the log of `trireme eval`.
ExtraState weights(WeightsKind kind) {
  ExtraState state{"weights", [kind] { return kind == WeightsKind::averaged ? "averaged" : "raw"; },
                   [](const std::string&) {}};
  state.required = false;
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

/// Newest first, best_model last: it may hold averaged weights.
std::vector<io::Manifest> checkpoints_in(const std::filesystem::path& folder) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(folder, ignored)) return {};
  std::vector<io::Manifest> found = io::CheckpointFolder(folder).list();
  std::erase_if(found, [](const io::Manifest& one) { return one.name.ends_with(".previous"); });
  std::stable_partition(found.begin(), found.end(), [](const io::Manifest& one) { return one.name != kBest; });
  return found;
}

/// "latest (2 epochs done), epoch_1 (1 epoch done)"
std::string checkpoints_text(const std::vector<io::Manifest>& found) {
  std::vector<std::string> texts;
  for (const io::Manifest& one : found)
    texts.push_back(fmt::format("{} ({} epoch{} done)", one.name, one.epoch, one.epoch == 1 ? "" : "s"));
  return join_some(std::move(texts), kShown);
}

/// UsageError that lists the checkpoints in or beside the named folder when it is not one itself. `ours` is where this
/// training saves.
void require_checkpoint(const Named& named, const std::filesystem::path& ours) {
  const std::filesystem::path path = (named.folder / named.name).lexically_normal();
  std::error_code ignored;
  if (std::filesystem::exists(path / "manifest.json", ignored)) return;
  for (const std::filesystem::path& folder : {path, path / ours.filename(), named.folder}) {
    const std::vector<io::Manifest> found = checkpoints_in(folder);
    if (found.empty()) continue;
    throw UsageError(
        "{} is not a checkpoint; {} has {}. Name one of them: --resume {}, or --resume auto for the newest of {}",
        path.string(), folder.string(), checkpoints_text(found), (folder / found[0].name).string(), ours.string());
  }
  throw UsageError(
      "{} is not a checkpoint (it has no manifest.json), and there is none in it; train from the start without "
      "--resume, or take --resume auto, which does so when there is none in {}",
      path.string(), ours.string());
}

/// The text of the best value in `folder` when best_model is not of a later epoch; or kNone.
std::string saved_best(const std::filesystem::path& folder, int64_t epoch) {
  for (const io::Manifest& manifest : io::CheckpointFolder(folder).list()) {
    const auto found = manifest.state.find("extra.best");
    if (manifest.name == kBest && manifest.epoch <= epoch && found != manifest.state.end()) return found->second;
  }
  return kNone;
}

void warn_of_changes(const Restored& restored, const std::string& config) {
  const std::vector<std::string> changes = config_changes(restored.config, config);
  if (changes.empty()) return;
  log_warning("{} was saved with another configuration: {}", restored.name, join_some(changes, kShown, "; "));
}

}  // namespace

std::filesystem::path output_folder(const config::TrainConfig& config) {
  return std::filesystem::path(config.global.output_dir) / config.arch.name;
}

OwnerLock lock_output(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw SystemError(error.value(), "cannot make the folder {}", folder.string());
  OwnerLock lock(folder / ".lock");
  if (const auto& owner = lock.held_by())
    throw UsageError(
        "{} is in use: {} trains into it, and two would overwrite each other's checkpoints; wait for it, end it, or "
        "take another folder by -o Global.output_dir=PATH",
        folder.string(), *owner);
  return lock;
}

Saver::Saver(const config::TrainConfig& config, const train::Ranks& ranks, Batches& batches, train::Step& step)
    : ranks_(ranks),
      batches_(batches),
      step_(step),
      folder_(output_folder(config)),
      config_(config.to_text()),
      checkpoint_(folder_, ranks.group(), {.keep = 0, .not_resumed = kBest}) {
  checkpoint_.set_config(config_);
}

TrainingState Saver::state_of(SavedProgress& progress, WeightsKind kind) {
  TrainingState state = step_.state();
  state.loader = batches_.loader();
  state.extra.push_back(iteration(progress));
  state.extra.push_back(best(progress));
  state.extra.push_back(evaluation(progress));
  if (state.ema) state.extra.push_back(weights(kind));
  if (data::Loader* unlabelled = batches_.unlabelled_loader())
    state.extra.emplace_back(
        "unlabelled", [unlabelled] { return to_text(unlabelled->state()); },
        [unlabelled](const std::string& text) { unlabelled->load_state(data::parse_sampler_state(text)); });
  return state;
}

void Saver::save(const std::string& name, const SavedProgress& progress, WeightsKind kind) {
  SavedProgress now = progress;
  checkpoint_.save_as(name, state_of(now, kind), progress);
  log_info("saved {}{}", (folder_ / name).string(), kind == WeightsKind::averaged ? " (averaged weights)" : "");
}

void Saver::note_evaluation(const SavedProgress& progress) const {
  SavedProgress now = progress;
  std::map<std::string, std::string> texts;
  for (const ExtraState& extra : {best(now), evaluation(now)}) texts[extra.key()] = extra.save();
  ranks_.on_main([&] {
    const io::CheckpointFolder checkpoints(folder_);
    for (const io::Manifest& one : checkpoints.list())
      if (one.step == progress.step && one.epoch == progress.epoch && one.name != kBest)
        checkpoints.set_state(one.name, texts);
  });
}

// Of a checkpoint that was saved before its evaluation and knows nothing of it: that may have found the best so far.
std::optional<double> Saver::best_until(const SavedProgress& progress, const std::filesystem::path& folder) const {
  std::string text;
  ranks_.on_main([&] { text = saved_best(folder, progress.epoch); });
  const std::optional<double> saved = parse_best(ranks_.from_main(text));
  return saved ? saved : progress.best;
}

std::optional<SavedProgress> Saver::restore(const std::string& from) {
  SavedProgress progress;
  const TrainingState state = state_of(progress);
  const bool newest = from == "auto";
  const Named named(from);
  if (!newest) ranks_.on_main([&] { require_checkpoint(named, folder_); });
  const Restored restored =
      newest ? checkpoint_.restore(state) : Checkpoint(named.folder, ranks_.group()).restore_from(named.name, state);
  if (!restored) return std::nullopt;
  if (ranks_.is_main()) warn_of_changes(restored, config_);
  static_cast<Progress&>(progress) = restored;
  if (!progress.notes_evaluation) progress.best = best_until(progress, newest ? folder_ : named.folder);
  return progress;
}

}  // namespace trireme::trainer
