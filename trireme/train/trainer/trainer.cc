#include "trireme/train/trainer/trainer.h"

#include <ATen/DeviceAccelerator.h>
#include <signal.h>
#include <torch/torch.h>

#include <cmath>

#include "trireme/core/error.h"
#include "trireme/core/log.h"
#include "trireme/core/text.h"
#include "trireme/data/order/mix.h"
#include "trireme/optim/optimizers.h"
#include "trireme/train/callbacks.h"
#include "trireme/train/trainer/make_optimizer.h"
#include "trireme/train/trainer/make_step.h"
#include "trireme/train/trainer/ready_network.h"
#include "trireme/watch/report.h"

namespace trireme::trainer {
namespace {

constexpr int64_t kWarmIters = 5;  // whose time says nothing about the rest

void seed_epoch(const config::TrainConfig& config, const train::Ranks& ranks, int64_t epoch) {
  torch::manual_seed(data::mix(config.global.seed + ranks.me().rank, epoch));
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

std::optional<OwnerLock> lock_on_main(const config::TrainConfig& config, const train::Ranks& ranks) {
  std::optional<OwnerLock> lock;
  ranks.on_main([&] { lock.emplace(lock_output(output_folder(config))); });
  return lock;
}

std::vector<train::BadTotal> bad_totals(Batches& batches) {
  std::vector<train::BadTotal> totals = {{batches.loader().dataset(), "DataLoader.Train"}};
  if (batches.unlabelled_loader() != nullptr)
    totals.emplace_back(batches.unlabelled_loader()->dataset(), "DataLoader.UnLabelTrain");
  return totals;
}

/// What to try. The loss scale cannot cure it: it comes after the loss.
std::vector<std::string> cures(const config::TrainConfig& config) {
  const config::Optimizer& optimizer = config.optimizer;
  std::vector<std::string> all = {
      optimizer.lr.values.empty()
          ? fmt::format("a lower rate (-o Optimizer.lr.learning_rate={:g})", optimizer.lr.learning_rate / 10)
          : "lower rates (-o Optimizer.lr.values=[…])"};
  if (!optimizer.clip_norm) all.emplace_back("clipped gradients (-o Optimizer.clip_norm=1.0)");
  if (config.amp.use_amp) all.emplace_back("another precision (-o AMP.dtype=bfloat16, -o AMP.use_amp=False)");
  all.emplace_back("the samples of that step: are there broken ones?");
  return all;
}

/// What "best" is about: the first metric, of which more is better, or else the loss, of which less is.
callback::Watch watch_best(const Results& results, std::optional<double> best) {
  for (const auto& [name, value] : results)
    if (name.starts_with("top")) return {name, callback::Better::more, 0, best};
  return {"loss", callback::Better::less, 0, best};
}

bool is_better(const Results& results, const Results& other) {
  if (results.empty()) return false;
  callback::Watch watch = watch_best(results, {});
  watch.improved(other);
  return watch.improved(results);
}

}  // namespace

Trainer::Trainer(config::TrainConfig config, const TrainerOptions& options)
    : config_(std::move(config)),
      resume_command_(options.resume_command),
      ranks_(ready_ranks(config_.global)),
      lock_(lock_on_main(config_, ranks_)),
      losses_(make_losses(config_.loss.train, config_.document.section("Loss").at("Train"))),
      net_(ready_to_train(config_, ranks_, {.own_weights = has_checkpoint(config_, options.resume)})),
      batches_(config_, losses_.need_labels(), ranks_.me(), ranks_.device()),
      bad_(bad_totals(batches_)),
      optimizer_(make_optimizer(config_, *net_.trained())),
      step_(make_step(config_, net_, ranks_, *optimizer_)),
      schedule_(
          ready_schedule(config_, global_batch(config_, options.file_batch_size, ranks_.me().size), steps_per_epoch())),
      metrics_(make_metrics(config_.metric.train, config_.document.section("Metric").at("Train"))),
      saver_(config_, ranks_, batches_, step_),
      place_{.epochs = config_.global.epochs, .steps = batches_.size()} {
  ranks_.require_equal_samples("DataLoader.Train", batches_.loader().dataset()->size());
  if (const data::Loader* unlabelled = batches_.unlabelled_loader())
    ranks_.require_equal_samples("DataLoader.UnLabelTrain", unlabelled->dataset()->size());
  if (config_.global.eval_during_train && config_.eval) evaluator_ = std::make_unique<Evaluator>(config_, ranks_);
  if (config_.global.use_visualdl && ranks_.is_main())
    curves_ = std::make_unique<io::EventWriter>(saver_.folder() / "tensorboard");
  resume(first_of(options.resume, config_.global.checkpoints));
  config_.warn_unknown();
}

void Trainer::resume(const std::string& from) {
  if (from.empty()) return;
  const auto found = saver_.restore(from);
  if (!found) {
    log_info("--resume auto: no checkpoint in {} yet; training starts with the first epoch", saver_.folder().string());
    return;
  }
  progress_ = *found;
  place_.epoch = progress_.epoch;
  progress_.evaluation_due &= evaluator_ != nullptr;
  const bool all = progress_.epoch >= config_.global.epochs && !progress_.evaluation_due;
  log_info("resumed: {} of {} epochs are done{}{}", progress_.epoch, config_.global.epochs,
           progress_.evaluation_due ? "; the last of them is evaluated first" : "",
           all ? "; there is nothing left to do (-o Global.epochs=N for more)" : "");
}

void Trainer::train() {
  train::Meter meter(losses_.names_with_total(), metrics_.all, {.metrics_first = true});
  train::Training& self = *this;
  loop_.emplace(self, place_, train::Loop::Parts{step_, ranks_, std::move(meter)});
  if (progress_.evaluation_due) evaluate();
  loop_->run();
}

int64_t Trainer::begin_epoch() {
  place_.step = first_ = progress_.iter == 0 ? 0 : batches_.go_on(progress_.iter);
  if (progress_.iter == 0) {
    seed_epoch(config_, ranks_, place_.epoch);
    batches_.start(place_.epoch);
  }
  net_.set_training(true);
  pace_.reset();
  return place_.steps;
}

train::Meter::Batch Trainer::train_batch(const train::BatchOptions& options) {
  const TrainBatch batch = batches_.next();
  pace_.read();
  const Labels labels{batch.target, batch.labelled};
  std::optional<Outputs> outputs;
  Losses::Values losses;
  optim::set_lr(*optimizer_, lr_ = rate_at(place_.step));
  const auto loss = [&] {
    outputs = net_.forward(batch.images);
    losses = losses_(*outputs, labels);
    return losses.total;
  };
  step_(loss, {.samples = batch.rows(), .update = options.update});
  if (step_.update() != train::Update::none) ++progress_.step;
  if (step_.update() == train::Update::skipped) log_overflow();
  train::Meter::Batch numbers{.losses = losses.with_total(),
                              .sums = metrics_.measure(*outputs, labels),
                              .rows = batch.rows(),
                              .step = place_.step};
  pace_.done(batch.rows());
  return numbers;
}

// Before the first step a Ctrl-C ends the process as usual: what an earlier training saved stays.
void Trainer::end_batch() {
  loop_->catch_signals({SIGINT, SIGTERM, SIGUSR1});
  if (prints(place_.step)) {
    const RateText lr{schedule_title(config_.optimizer.lr), lr_};
    const std::string memory = config_.global.print_mem_info ? memory_text() : "";
    log_info("{}", train_line(place_, lr, loop_->results(), pace_, memory));
    draw("train", loop_->results());
    watch::report("lr", lr_);
    pace_.reset();
  }
  if (place_.step == kWarmIters) pace_.reset();
  if (step_.pending() == 0 && !loop_->agree_to_stop({.save = save_is_due()}) && loop_->saving()) {
    progress_.iter = place_.step + 1;
    save_latest();
    pace_.reset();
  }
}

bool Trainer::prints(int64_t step) const {
  return step % config_.global.print_batch_step == 0;
}

// Rank 0 alone looks at its clock, and the ranks then agree. The end of an epoch is saved anyway.
bool Trainer::save_is_due() const {
  if (!ranks_.is_main() || loop_->is_last_batch()) return false;
  const config::Global& global = config_.global;
  const std::chrono::duration<double, std::ratio<60>> minutes = std::chrono::steady_clock::now() - saved_at_;
  return (global.save_steps > 0 && progress_.step % global.save_steps == 0) ||
         (global.save_minutes > 0 && minutes.count() >= global.save_minutes);
}

void Trainer::save_latest() {
  saver_.save("latest", progress_);
  saved_at_ = std::chrono::steady_clock::now();
}

// An epoch is saved before it is evaluated; `latest` last: it is the newest, which --resume auto takes. What is saved
// is the beginning of the next epoch, which may have another dataset.
void Trainer::end_epoch() {
  const Results& results = loop_->results();
  if (loop_->stopping()) {
    progress_.iter = place_.step;
    save_latest();
    return log_stop();
  }
  if (place_.step > first_) {  // else resumed at its end
    log_info("{}", train_average_line(place_, first_, results));
    if (!prints(place_.step - 1)) draw("train", results);
  }
  for (train::BadTotal& bad : bad_)
    bad.look(ranks_.me(), [this](const auto& mine) { return ranks_.numbers_of_all(mine); });
  progress_.epoch = place_.epoch + 1;
  progress_.iter = 0;
  progress_.evaluation_due = evaluates(progress_.epoch);
  batches_.start(progress_.epoch);
  const int64_t every = config_.global.save_interval;
  if (every > 0 && progress_.epoch % every == 0) saver_.save(fmt::format("epoch_{}", progress_.epoch), progress_);
  save_latest();
  if (progress_.evaluation_due) evaluate();
  if (progress_.epoch < place_.epochs && loop_->agree_to_stop()) log_stop();
}

bool Trainer::evaluates(int64_t epoch) const {
  const config::Global& global = config_.global;
  return evaluator_ && epoch % global.eval_interval == 0 && epoch > global.start_eval_epoch;
}

// With EMA both the raw and the averaged weights; the model keeps the better ones until best_model is saved.
void Trainer::evaluate() {
  Results results = evaluate_weights(WeightsKind::raw);
  std::optional<optim::Ema::Applied> averaged;
  if (step_.ema() != nullptr) {
    averaged.emplace(*step_.ema());
    const Results other = evaluate_weights(WeightsKind::averaged);
    if (is_better(other, results))
      results = other;
    else
      averaged.reset();
  }
  callback::Watch watch = watch_best(results, progress_.best);
  const bool best = !results.empty() && watch.improved(results);
  progress_.best = watch.best();
  progress_.evaluation_due = false;
  if (best) saver_.save("best_model", progress_, averaged ? WeightsKind::averaged : WeightsKind::raw);
  saver_.note_evaluation(progress_);
  if (progress_.best) log_info("{}", best_line(progress_.epoch, *progress_.best));
}

Results Trainer::evaluate_weights(WeightsKind kind) {
  const bool averaged = kind == WeightsKind::averaged;
  const auto whole = ranks_.whole_weights();
  const Results results =
      evaluator_->run(net_, eval_amp(), {progress_.epoch, averaged, [this] { return loop_->signalled(); }});
  draw(averaged ? "eval_ema" : "eval", results);
  return results;
}

void Trainer::draw(const std::string& prefix, const Results& results) {
  if (!curves_) return;
  for (const auto& [name, value] : results) curves_->add_scalar(prefix + "/" + name, value, progress_.step);
  if (prefix == "train") curves_->add_scalar("train/lr", lr_, progress_.step);
  curves_->flush();
}

void Trainer::log_stop() const {
  log_info("[Train][Epoch {}/{}][Iter: {}/{}]stopped by {}; {} is saved. To go on: {}", place_.epoch + 1, place_.epochs,
           place_.step - 1, place_.steps, train::signal_name(loop_->signal()), (saver_.folder() / "latest").string(),
           resume_command_);
}

void Trainer::log_overflow() {
  log_info("[Train][Epoch {}/{}][Iter: {}/{}]gradients overflowed: no step is taken; the loss scale is now {:g}",
           place_.epoch + 1, place_.epochs, place_.step, place_.steps, step_.scaler().current_scale());
}

// Names the step that broke, not the one in which it was seen.
void Trainer::refuse(const train::BadLoss& bad) const {
  const int64_t step = place_.epoch * steps_per_epoch() + bad.step / config_.global.update_freq + 1;
  throw UsageError(
      "[Train][Epoch {}/{}][Iter: {}/{}] the loss of {} is {} in step {}, whose learning rate is {:g}; training stops. "
      "Try {}; the checkpoints in {} are those from before",
      place_.epoch + 1, place_.epochs, bad.step, place_.steps, bad.ranks_text(), std::abs(bad.value), step,
      rate_at(bad.step), join(cures(config_), ", or "), saver_.folder().string());
}

// The schedule goes by epochs and the part of one that is done: steps of a run with other batches have another length.
double Trainer::rate_at(int64_t step) const {
  return schedule_(place_.epoch * steps_per_epoch() + step / config_.global.update_freq);
}

int64_t Trainer::steps_per_epoch() const {
  const int64_t every = config_.global.update_freq;
  return (batches_.size() + every - 1) / every;
}

std::string Trainer::memory_text() const {
  if (!ranks_.device().is_cuda()) return process_memory_text();
  const auto stats = at::accelerator::getDeviceStats(ranks_.device().index());
  constexpr auto kAll = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  constexpr int64_t kMb = 1 << 20;
  return fmt::format(", max_mem_reserved: {} MB, max_mem_allocated: {} MB", stats.reserved_bytes[kAll].peak / kMb,
                     stats.allocated_bytes[kAll].peak / kMb);
}

// Weights in low precision need it in evaluations, too.
AmpOptions Trainer::eval_amp() const {
  const AmpOptions& amp = step_.options().amp;
  return amp.level == AmpLevel::O2 || config_.amp.use_fp16_test ? amp : AmpOptions{};
}

Results evaluate(const config::TrainConfig& config) {
  const train::Ranks ranks = ready_ranks(config.global);
  const RoleModels net = ready_to_evaluate(config, ranks);
  Evaluator evaluator(config, ranks);
  config.warn_unknown();
  return evaluator.run(net, config.amp.use_fp16_test ? amp_of(config.amp, ranks.device().type()) : AmpOptions{});
}

}  // namespace trireme::trainer
