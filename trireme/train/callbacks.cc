#include "trireme/train/callbacks.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "trireme/core/error.h"
#include "trireme/core/log.h"
#include "trireme/core/text.h"
#include "trireme/io/format/events.h"
#include "trireme/train/model.h"

namespace trireme::callback {
namespace {

bool is_more_better(const std::string& monitor, Better better) {
  if (better != Better::automatic) return better == Better::more;
  const std::string name = to_lower(monitor);
  for (const char* word : {"acc", "auc", "precision", "recall"})
    if (name.find(word) != std::string::npos) return true;
  return false;
}

}  // namespace

ModelCheckpoint::ModelCheckpoint(ModelCheckpointOptions options) : options_(std::move(options)) {
  if (options_.save_freq < 1)
    throw UsageError("ModelCheckpoint: save_freq is {}; it must be at least 1", options_.save_freq);
}

void ModelCheckpoint::save(Run& run, const std::string& name) const {
  const std::filesystem::path& folder = options_.save_dir.empty() ? run.save_dir : options_.save_dir;
  if (folder.empty()) return;
  const std::filesystem::path path = std::filesystem::absolute(folder / name);
  run.model.save(path);
  if (run.is_main()) log_info("[train] saved a checkpoint at {}", path.string());
}

void ModelCheckpoint::on_epoch_end(Run& run) {
  if (run.epoch % options_.save_freq == 0) save(run, std::to_string(run.epoch));
}

void ModelCheckpoint::on_train_end(Run& run) {
  save(run, run.signal == 0 ? "final" : "interrupted");
}

Watch::Watch(std::string monitor, Better better, double min_delta, std::optional<double> baseline)
    : monitor_(std::move(monitor)),
      more_(is_more_better(monitor_, better)),
      min_delta_(std::abs(min_delta)),
      best_(baseline) {}

bool Watch::improved(const Results& results) {
  const double now = results.at(monitor_);
  const double gain = !best_ ? 0 : more_ ? now - *best_ : *best_ - now;
  const bool better = std::isfinite(now) && (!best_ || gain > min_delta_);
  if (better) best_ = now;
  return better;
}

void WatchCallback::on_train_begin(Run& /*run*/) {
  watch_ = initial_;
  waited_ = cooling_ = 0;
}

void WatchCallback::on_epoch_end(Run& run) {
  if (!run.has_eval) look(run);
}

void WatchCallback::on_eval_end(Run& run) {
  look(run);
}

// "EarlyStopping 2 0 0x1.8p-1": the best value, as its bits, or "none" last.
std::string WatchCallback::state_text() const {
  return fmt::format("{} {} {} {}", name_, waited_, cooling_,
                     watch_.best() ? fmt::format("{:a}", *watch_.best()) : "none");
}

void WatchCallback::load_state(const std::string& text) {
  std::vector<std::string> words = split(text, ' ');
  words.resize(std::max<size_t>(words.size(), 4));
  const auto waited = parse_int(words[1], 0, INT64_MAX), cooling = parse_int(words[2], 0, INT64_MAX);
  const std::optional<double> best = parse_hex_real(words[3]);
  if (words.size() != 4 || words[0] != name_ || !waited || !cooling || (!best && words[3] != "none"))
    throw UsageError("the checkpoint has '{}' where the state of {} should be; give fit() the same callbacks", text,
                     name_);
  waited_ = *waited;
  cooling_ = *cooling;
  watch_.set_best(best);
}

EarlyStopping::EarlyStopping(const EarlyStoppingOptions& options)
    : WatchCallback("EarlyStopping", Watch(options.monitor, options.mode, options.min_delta, options.baseline)),
      options_(options) {}

void EarlyStopping::on_train_begin(Run& run) {
  WatchCallback::on_train_begin(run);
  stopped_epoch_.reset();
}

void EarlyStopping::look(Run& run) {
  if (watch_.improved(run.logs)) {
    waited_ = 0;
    if (options_.save_best_model && !run.save_dir.empty()) run.model.save(run.save_dir / "best_model");
    return;
  }
  if (++waited_ < options_.patience) return;
  run.stop = true;
  stopped_epoch_ = run.epoch;
  if (run.is_main())
    log_info("[train] epoch {}: {} has not become better than {} for {} evaluations; training stops early",
             run.epoch + 1, watch_.monitor(), watch_.best().value_or(std::nan("")), waited_);
}

ReduceLROnPlateau::ReduceLROnPlateau(const ReduceLROnPlateauOptions& options)
    : WatchCallback("ReduceLROnPlateau", Watch(options.monitor, options.mode, options.min_delta)), options_(options) {
  if (options.factor <= 0 || options.factor >= 1)
    throw UsageError("ReduceLROnPlateau: factor is {}; it must lie between 0 and 1 for the rate to fall",
                     options.factor);
}

void ReduceLROnPlateau::look(Run& run) {
  const bool improved = watch_.improved(run.logs);
  if (cooling_ > 0) waited_ = 0;
  if (cooling_ > 0 && --cooling_ > 0) return;
  waited_ = improved ? 0 : waited_ + 1;
  if (waited_ < std::max<int64_t>(options_.patience, 1)) return;
  const double before = run.model.learning_rate();
  const double after = std::max(before * options_.factor, options_.min_lr);
  waited_ = 0;
  cooling_ = options_.cooldown;
  if (after >= before) return;
  run.model.set_learning_rate(after);
  if (run.is_main()) log_info("[train] epoch {}: the learning rate falls from {} to {}", run.epoch + 1, before, after);
}

void LRScheduler::on_epoch_begin(Run& run) {
  if (!options_.by_step) run.model.set_learning_rate(schedule_(run.epoch));
}

void LRScheduler::on_train_batch_begin(Run& run) {
  if (options_.by_step) run.model.set_learning_rate(schedule_(run.iteration));
}

void TensorBoard::on_train_begin(Run& run) {
  if (run.is_main()) events_ = std::make_shared<io::EventWriter>(log_dir_);
}

void TensorBoard::write(const Run& run, const std::string& group, int64_t step) {
  if (!run.is_main()) return;
  if (!events_) events_ = std::make_shared<io::EventWriter>(log_dir_);
  for (const auto& [name, value] : run.logs) events_->add_scalar(group + name, value, step);
}

void TensorBoard::on_train_batch_end(Run& run) {
  if (!run.logged) return;
  const int64_t step = run.iteration + 1;  // the batch that ends is not counted yet
  write(run, "train/", step);
  if (events_) events_->add_scalar("train/learning_rate", run.model.learning_rate(), step);
}

void TensorBoard::on_eval_end(Run& run) {
  write(run, "eval/", run.iteration);
}

void TensorBoard::on_train_end(Run& /*run*/) {
  if (events_) events_->flush();
}

}  // namespace trireme::callback
