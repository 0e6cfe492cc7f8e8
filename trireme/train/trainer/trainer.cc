#include "trireme/train/trainer/trainer.h"

#include <ATen/DeviceAccelerator.h>
#include <signal.h>
#include <torch/torch.h>

#include <algorithm>

#include "trireme/core/error.h"
#include "trireme/core/log.h"
#include "trireme/core/preemption.h"
#include "trireme/data/order/mix.h"
#include "trireme/train/trainer/bad_loss.h"
#include "trireme/train/trainer/make_team.h"
#include "trireme/train/trainer/ready_network.h"
#include "trireme/train/trainer/turn.h"

namespace trireme::trainer {
namespace {

constexpr int64_t kWarmIters = 5;  // whose time says nothing about the rest

void seed_epoch(const config::TrainConfig& config, const Team& team, int64_t epoch) {
  torch::manual_seed(data::mix(config.global.seed + team.me().rank, epoch));
}

std::string first_of(const std::string& one, const std::string& other) {
  return one.empty() ? other : one;
}

/// Whether there are weights to go on with. `auto` may find none.
bool has_checkpoint(const config::TrainConfig& config, const std::string& resume) {
  const std::string checkpoint = first_of(resume, config.global.checkpoints);
  return !checkpoint.empty() && checkpoint != "auto";
}

GlobalBatch global_batch(const config::TrainConfig& config, int64_t file_batch_size, int ranks) {
  const int64_t mine = config.train->sampler.batch_size;
  const int64_t theirs = file_batch_size > 0 ? file_batch_size : mine;
  return {.assumed = theirs * assumed_ranks(config.optimizer.name), .actual = mine * ranks * config.global.update_freq};
}

optim::Schedule ready_schedule(const config::TrainConfig& config, const GlobalBatch& batch, int64_t steps_per_epoch) {
  if (const auto note = batch_note(config.optimizer.lr, batch)) log_info("{}", *note);
  return make_schedule(config.optimizer.lr,
                       {.epochs = config.global.epochs, .steps_per_epoch = steps_per_epoch, .batch = batch});
}

std::unique_ptr<OutputLock> lock_output(const config::TrainConfig& config, const Team& team) {
  std::unique_ptr<OutputLock> lock;
  team.on_main([&] { lock = std::make_unique<OutputLock>(output_folder(config)); });
  return lock;
}

std::vector<BadTotal> bad_totals(Batches& batches) {
  std::vector<BadTotal> totals = {{batches.loader().dataset(), "DataLoader.Train"}};
  if (batches.unlabelled_loader() != nullptr)
    totals.emplace_back(batches.unlabelled_loader()->dataset(), "DataLoader.UnLabelTrain");
  return totals;
}

const char* signal_name(int signal) {
  return signal == SIGINT ? "Ctrl-C (SIGINT)" : signal == SIGTERM ? "SIGTERM" : "SIGUSR1";
}

}  // namespace

Trainer::Trainer(config::TrainConfig config, const TrainerOptions& options)
    : config_(std::move(config)),
      resume_command_(options.resume_command),
      team_(make_team(config_.global)),
      lock_(lock_output(config_, team_)),
      losses_(make_losses(config_.loss.train, config_.document.section("Loss").at("Train"))),
      net_(ready_to_train(config_, team_, {.own_weights = has_checkpoint(config_, options.resume)})),
      batches_(config_, losses_.need_labels(), team_.me(), team_.device()),
      bad_(bad_totals(batches_)),
      updater_(config_, net_, team_),
      schedule_(
          ready_schedule(config_, global_batch(config_, options.file_batch_size, team_.me().size), steps_per_epoch())),
      scores_(losses_.names(), make_metrics(config_.metric.train, config_.document.section("Metric").at("Train")),
              Scores::Order::metrics_first),
      saver_(config_, team_),
      place_{.epochs = config_.global.epochs, .iters = batches_.size()} {
  if (config_.global.eval_during_train && config_.eval) evaluator_ = std::make_unique<Evaluator>(config_, team_);
  if (config_.global.use_visualdl && team_.is_main())
    curves_ = std::make_unique<io::EventWriter>(saver_.folder() / "tensorboard");
  resume(first_of(options.resume, config_.global.checkpoints));
  config_.warn_unknown();
}

void Trainer::resume(const std::string& from) {
  if (from.empty()) return;
  const auto found = saver_.restore(from, {batches_, updater_});
  if (!found) {
    log_info("--resume auto: no checkpoint in {} yet; training begins anew", saver_.folder().string());
    return;
  }
  standing_ = *found;
  const bool all = standing_.epoch >= config_.global.epochs;
  log_info("resumed: {} of {} epochs are done{}", standing_.epoch, config_.global.epochs,
           all ? "; there is nothing left to do (-o Global.epochs=N for more)" : "");
}

void Trainer::train() {
  while (standing_.epoch < config_.global.epochs) {
    place_.epoch = standing_.epoch + 1;
    train_epoch();
    if (stopped_) return;
    ++standing_.epoch;
    standing_.iter = 0;
    save();
    evaluate();
    if (told_to_stop_after_epoch()) return;
  }
}

void Trainer::begin_epoch() {
  place_.iter = place_.first = standing_.iter == 0 ? 0 : batches_.go_on(standing_.iter);
  if (standing_.iter == 0) {
    seed_epoch(config_, team_, standing_.epoch);
    batches_.start(standing_.epoch);
  }
  net_.set_training(true);
  scores_.reset();
  pace_ = Pace();
}

void Trainer::train_epoch() {
  begin_epoch();
  const Turns turns{.every = config_.global.update_freq, .first = place_.first, .iters = place_.iters};
  for (; place_.iter < place_.iters; ++place_.iter) {
    const TrainBatch batch = batches_.next();
    pace_.read();
    const Turn turn = turn_of(place_.iter, turns);
    const Labels labels{batch.target, batch.labelled};
    const auto local = team_.gradients(turn.last);
    const auto [outputs, losses] = [&] {
      const optim::Autocast low = updater_.autocast();
      Outputs all = net_.forward(batch.images);
      Losses::Values values = losses_(all, labels);
      return std::pair(std::move(all), std::move(values));
    }();
    updater_.backward(losses.total * turn.share);
    if (turn.last) take_step();
    scores_.add({losses, outputs, labels, place_.iter});
    pace_.done(batch.rows());
    if (place_.iter % config_.global.print_batch_step == 0) report(false);
    if (place_.iter == kWarmIters) pace_.reset();
    if (turn.last && told_to_stop()) return;
  }
  report(true);
  look_for_bad_pictures();
}

void Trainer::look_for_bad_pictures() {
  for (BadTotal& bad : bad_) bad.look(team_.me(), [this](const auto& mine) { return team_.numbers_of_all(mine); });
}

bool Trainer::told_to_stop() {
  if (!saver_.preempted()) return false;
  if (const auto bad = scores_.total(team_).bad) refuse(*bad);
  standing_.iter = place_.iter + 1;
  saver_.save("latest", standing_, {batches_, updater_});
  tell_of_stop();
  return stopped_ = true;
}

void Trainer::tell_of_stop() const {
  log_info("[Train][Epoch {}/{}][Iter: {}/{}]stopped by {}; {} is saved. To go on: {}", place_.epoch, place_.epochs,
           std::min(place_.iter, place_.iters - 1), place_.iters, signal_name(saver_.signal()),
           (saver_.folder() / "latest").string(), resume_command_);
}

// The epoch is saved; a step of the next one need not be waited for.
bool Trainer::told_to_stop_after_epoch() {
  if (standing_.epoch >= config_.global.epochs || !saver_.preempted()) return false;
  tell_of_stop();
  return stopped_ = true;
}

// The schedule goes by epochs and the part of one that is done: steps of a run with other batches have another length.
double Trainer::rate_at(int64_t iter) const {
  return schedule_(standing_.epoch * steps_per_epoch() + iter / config_.global.update_freq);
}

void Trainer::take_step() {
  lr_ = rate_at(place_.iter);
  ++standing_.step;
  if (!updater_.step(lr_))
    log_info("[Train][Epoch {}/{}][Iter: {}/{}]gradients overflowed: no step is taken; the loss scale is now {:g}",
             place_.epoch, place_.epochs, place_.iter, place_.iters, updater_.scaler().current_scale());
}

void Trainer::report(bool whole_epoch) {
  const Scores::Total total = scores_.total(team_);
  if (total.bad) refuse(*total.bad);
  if (whole_epoch) {
    log_info("{}", train_average_line(place_, total.results));
    draw("train", total.results);
    if (curves_) curves_->flush();
    return;
  }
  const RateText lr{schedule_title(config_.optimizer.lr), lr_};
  log_info("{}", train_line(place_, lr, total.results, pace_, config_.global.print_mem_info ? memory_text() : ""));
  pace_.reset();
}

void Trainer::evaluate() {
  const int64_t epoch = standing_.epoch;
  const config::Global& global = config_.global;
  if (!evaluator_ || epoch % global.eval_interval != 0 || epoch <= global.start_eval_epoch) return;
  std::optional<optim::Ema::Applied> averaged;  // best_model too has what was evaluated
  if (updater_.ema() != nullptr) averaged.emplace(*updater_.ema());
  const PreemptionNotice notice({SIGINT, SIGTERM});
  const Results results = evaluator_->run(net_, updater_.precision(), epoch, [&] { return notice.received(); });
  draw("eval", results);
  const Judged judged = judge(results);
  const bool best = judged.better_than(standing_.best);
  if (best) standing_.best = judged.value;
  if (best) saver_.save("best_model", standing_, {batches_, updater_});
  if (standing_.best) log_info("{}", best_line(epoch, *standing_.best));
}

// `latest` last: it is the newest, which --resume auto takes.
void Trainer::save() {
  const int64_t every = config_.global.save_interval;
  if (every > 0 && standing_.epoch % every == 0)
    saver_.save(fmt::format("epoch_{}", standing_.epoch), standing_, {batches_, updater_});
  saver_.save("latest", standing_, {batches_, updater_});
}

void Trainer::draw(const std::string& prefix, const Results& results) {
  if (!curves_) return;
  for (const auto& [name, value] : results) curves_->add_scalar(prefix + "/" + name, value, standing_.step);
  if (prefix == "train") curves_->add_scalar("train/lr", lr_, standing_.step);
}

void Trainer::refuse(const Scores::BadLoss& bad) const {
  Place place = place_;
  place.iter = bad.iter;
  const int64_t step = standing_.epoch * steps_per_epoch() + bad.iter / config_.global.update_freq + 1;
  throw UsageError("{}; the checkpoints in {} are those from before",
                   bad_loss_text(config_, bad, {.place = place, .step = step, .rate = rate_at(bad.iter)}),
                   saver_.folder().string());
}

int64_t Trainer::steps_per_epoch() const {
  const int64_t every = config_.global.update_freq;
  return (batches_.size() + every - 1) / every;
}

std::string Trainer::memory_text() const {
  if (!team_.device().is_cuda()) return process_memory_text();
  const auto stats = at::accelerator::getDeviceStats(team_.device().index());
  constexpr auto kAll = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  constexpr int64_t kMb = 1 << 20;
  return fmt::format(", max_mem_reserved: {} MB, max_mem_allocated: {} MB", stats.reserved_bytes[kAll].peak / kMb,
                     stats.allocated_bytes[kAll].peak / kMb);
}

Results evaluate(const config::TrainConfig& config) {
  const Team team = make_team(config.global);
  const Network net = ready_to_evaluate(config, team);
  Evaluator evaluator(config, team);
  config.warn_unknown();
  Precision precision = precision_of(config.amp, team.device().type());
  precision.low_eval = config.amp.use_amp && config.amp.use_fp16_test;
  return evaluator.run(net, precision, 0);
}

}  // namespace trireme::trainer
