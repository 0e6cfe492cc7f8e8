#include "trireme/trainer/saver.h"

#include <torch/torch.h>

#include "trireme/config/number.h"
#include "trireme/core/error.h"
#include "trireme/core/log.h"

namespace trireme::trainer {
namespace {

double number(const std::string& text) {
  const auto value = config::evaluate(text);
  if (!value) throw UsageError("the checkpoint's manifest has '{}' where a number should be", text);
  return *value;
}

ExtraState iteration(Standing& standing) {
  return {"iter", [&standing] { return fmt::format("{}", standing.iter); },
          [&standing](const std::string& text) { standing.iter = static_cast<int64_t>(number(text)); }};
}

ExtraState best(Standing& standing) {
  return {"best", [&standing] { return standing.best ? fmt::format("{}", *standing.best) : "none"; },
          [&standing](const std::string& text) {
            standing.best = text == "none" ? std::nullopt : std::optional(number(text));
          }};
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

Restored restore_named(const std::filesystem::path& path, const Group& group, const TrainingState& state) {
  const std::filesystem::path folder = path.has_filename() ? path : path.parent_path();
  return Checkpoint(folder.parent_path().empty() ? "." : folder.parent_path(), group)
      .restore_from(folder.filename().string(), state);
}

}  // namespace

std::filesystem::path output_folder(const config::TrainConfig& config) {
  return std::filesystem::path(config.global.output_dir) / config.arch.name;
}

Saver::Saver(const config::TrainConfig& config, const Ranks& ranks)
    : ranks_(ranks), folder_(output_folder(config)), checkpoint_(folder_, ranks.group(), {.keep = 0}) {
  checkpoint_.set_config(config.to_text());
}

void Saver::save(const std::string& name, const Standing& standing, const Trained& trained) {
  Standing now = standing;
  checkpoint_.save_as(name, state_of(trained, now), standing);
  log_info("saved {}", (folder_ / name).string());
}

std::optional<Standing> Saver::restore(const std::string& from, const Trained& trained) {
  Standing standing;
  const TrainingState state = state_of(trained, standing);
  const Restored restored = from == "auto" ? checkpoint_.restore(state) : restore_named(from, ranks_.group(), state);
  if (!restored) return std::nullopt;
  static_cast<Progress&>(standing) = restored;
  return standing;
}

}  // namespace trireme::trainer
