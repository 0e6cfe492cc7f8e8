#include "trireme/trainer/trainer.h"

#include <ATen/DeviceAccelerator.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>

#include "trireme/core/error.h"
#include "trireme/core/log.h"
#include "trireme/parallel/sync_batch_norm.h"
#include "trireme/pipeline/mix.h"
#include "trireme/trainer/make_model.h"

namespace trireme::trainer {
namespace {

constexpr int64_t kWarmIters = 5;  // whose time says nothing about the rest

void seed(const config::TrainConfig& config, const Ranks& ranks) {
  torch::manual_seed(static_cast<uint64_t>(config.global.seed + ranks.me().rank));
}

void seed_epoch(const config::TrainConfig& config, const Ranks& ranks, int64_t epoch) {
  torch::manual_seed(data::mix(config.global.seed + ranks.me().rank, epoch));
}

std::string first_of(const std::string& one, const std::string& other) {
  return one.empty() ? other : one;
}

/// Whether the network begins with other weights than Arch.pretrained says. `auto` may find none.
bool has_own_weights(const config::TrainConfig& config, const std::string& resume) {
  const std::string checkpoint = first_of(resume, config.global.checkpoints);
  return !config.global.pretrained_model.empty() || (!checkpoint.empty() && checkpoint != "auto");
}

/// What PaddleClas can do and Trireme cannot is said before anything is made.
void require_classification(const config::Global& global) {
  if (global.use_multilabel) global.node.at("use_multilabel").fail("several labels a picture are not supported");
  if (global.eval_mode != "classification")
    global.node.at("eval_mode").fail("'{}' is not supported; only classification is", global.eval_mode);
  if (!global.train_mode.empty() && global.train_mode != "classification")
    global.node.at("train_mode").fail("'{}' is not supported; leave the key out", global.train_mode);
}

bool syncs_batch_norm(const config::Arch& arch) {
  return arch.use_sync_bn || std::any_of(arch.models.begin(), arch.models.end(),
                                         [](const auto& model) { return model.arch.use_sync_bn && !model.frozen; });
}

Network ready_network(const config::TrainConfig& config, Ranks& ranks, bool own_weights) {
  require_classification(config.global);
  seed(config, ranks);
  Network net = make_network(config.arch, {.own_weights = own_weights});
  if (!config.global.pretrained_model.empty())
    load_weights(*net.trained(), config.global.pretrained_model, {.what = "Global.pretrained_model"});
  net.to(ranks.device());
  const Precision precision = precision_of(config.amp, ranks.device().type());
  if (precision.low_weights) optim::lower_precision(*net.trained(), precision.dtype);
  if (syncs_batch_norm(config.arch)) convert_sync_batch_norm(*net.trained(), ranks.group());
  ranks.share(net.trained(), net.frozen());
  return net;
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

std::unique_ptr<OutputLock> lock_output(const config::TrainConfig& config, const Ranks& ranks) {
  std::unique_ptr<OutputLock> lock;
  ranks.on_main([&] { lock = std::make_unique<OutputLock>(output_folder(config)); });
  return lock;
}

}  // namespace

Trainer::Trainer(config::TrainConfig config, const TrainerOptions& options)
    : config_(std::move(config)),
      ranks_(config_.global),
      lock_(lock_output(config_, ranks_)),
      losses_(make_losses(config_.loss.train, config_.document.section("Loss").at("Train"))),
      net_(ready_network(config_, ranks_, has_own_weights(config_, options.resume))),
      batches_(config_, losses_.need_labels(), ranks_.me(), ranks_.device()),
      updater_(config_, net_, ranks_),
      schedule_(
          ready_schedule(config_, global_batch(config_, options.file_batch_size, ranks_.me().size), steps_per_epoch())),
      scores_(losses_.names(), make_metrics(config_.metric.train, config_.document.section("Metric").at("Train")),
              Scores::Order::metrics_first),
      saver_(config_, ranks_),
      place_{.epochs = config_.global.epochs, .iters = batches_.size()} {
  if (config_.global.eval_during_train && config_.eval) evaluator_ = std::make_unique<Evaluator>(config_, ranks_);
  if (config_.global.use_visualdl && ranks_.is_main())
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
  place_.iter = standing_.iter == 0 ? 0 : batches_.go_on(standing_.iter);
  if (standing_.iter == 0) {
    seed_epoch(config_, ranks_, standing_.epoch);
    batches_.start(standing_.epoch);
  }
  net_.set_training(true);
  scores_.reset();
  pace_ = Pace();
}

void Trainer::train_epoch() {
  begin_epoch();
  for (; place_.iter < place_.iters; ++place_.iter) {
    const TrainBatch batch = batches_.next();
    pace_.read();
    const Turn turn = turn_of(place_.iter);
    const Labels labels{batch.target, batch.labelled};
    const auto local = ranks_.gradients(turn.last);
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
}

bool Trainer::told_to_stop() {
  if (!saver_.preempted()) return false;
  if (const auto bad = scores_.total(ranks_).bad) refuse(*bad);
  standing_.iter = place_.iter + 1;
  saver_.save("latest", standing_, {batches_, updater_});
  log_info("[Train][Epoch {}/{}][Iter: {}/{}]stopped by a signal; --resume auto goes on from here", place_.epoch,
           place_.epochs, place_.iter, place_.iters);
  return stopped_ = true;
}

// The epoch is saved; a step of the next one need not be waited for.
bool Trainer::told_to_stop_after_epoch() {
  if (standing_.epoch >= config_.global.epochs || !saver_.preempted()) return false;
  log_info("[Train][Epoch {}/{}]stopped by a signal; --resume auto goes on from here", place_.epoch, place_.epochs);
  return stopped_ = true;
}

Trainer::Turn Trainer::turn_of(int64_t iter) const {
  const int64_t every = config_.global.update_freq;
  const int64_t first = iter - iter % every;
  const int64_t last = std::min(first + every, place_.iters) - 1;
  return {.share = 1.0 / static_cast<double>(last - first + 1), .last = iter == last};
}

// The schedule goes by epochs and the part of one that is done: steps of a run with other batches have another length.
void Trainer::take_step() {
  lr_ = schedule_(standing_.epoch * steps_per_epoch() + place_.iter / config_.global.update_freq);
  ++standing_.step;
  if (!updater_.step(lr_))
    log_info("[Train][Epoch {}/{}][Iter: {}/{}]gradients overflowed: no step is taken; the loss scale is now {:g}",
             place_.epoch, place_.epochs, place_.iter, place_.iters, updater_.scaler().current_scale());
}

void Trainer::report(bool whole_epoch) {
  const Scores::Total total = scores_.total(ranks_);
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
  const Results results = evaluator_->run(net_, updater_.precision(), epoch);
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

// The loss scale cannot cure it: it comes after the loss.
void Trainer::refuse(const Scores::BadLoss& bad) const {
  throw UsageError(
      "[Train][Epoch {}/{}][Iter: {}/{}] the loss of rank {} is {}; training stops, and the checkpoints in {} are "
      "those "
      "of the epochs before. Try a lower rate (-o Optimizer.lr.learning_rate=…, it was {:g}), look for broken samples, "
      "or, with mixed precision, take bfloat16 (-o AMP.dtype=bfloat16) or none (-o AMP.use_amp=False)",
      place_.epoch, place_.epochs, bad.iter, place_.iters, bad.rank, std::abs(bad.value), saver_.folder().string(),
      lr_);
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

Results evaluate(const config::TrainConfig& config) {
  require_classification(config.global);
  const Ranks ranks(config.global);
  const std::string weights = first_of(config.global.pretrained_model, config.global.checkpoints);
  if (weights.empty() && !config.arch.pretrained.wanted)
    config.global.node.fail("which weights are to be evaluated? name them by -o Global.pretrained_model={}",
                            (output_folder(config) / "best_model").string());
  seed(config, ranks);
  const Network net = make_network(config.arch, {.only_main = true, .own_weights = !weights.empty()});
  if (!weights.empty()) load_weights(*net.main(), weights, {.what = "Global.pretrained_model", .new_classes = false});
  net.to(ranks.device());
  Evaluator evaluator(config, ranks);
  config.warn_unknown();
  Precision precision = precision_of(config.amp, ranks.device().type());
  precision.low_eval = config.amp.use_amp && config.amp.use_fp16_test;
  return evaluator.run(net, precision, 0);
}

}  // namespace trireme::trainer
