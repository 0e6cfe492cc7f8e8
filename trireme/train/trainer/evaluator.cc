#include "trireme/train/trainer/evaluator.h"

#include <torch/torch.h>

#include <algorithm>

#include "trireme/config/check.h"
#include "trireme/core/error.h"
#include "trireme/core/log.h"
#include "trireme/train/trainer/make_dataset.h"
#include "trireme/train/trainer/memory.h"
#include "trireme/watch/report.h"

namespace trireme::trainer {
namespace {

const config::DataLoader& need_eval(const config::TrainConfig& config) {
  config.require_loader("Eval", "evaluate on");
  return *config.eval;
}

train::EvalBatches eval_batches(const config::TrainConfig& config, const train::Ranks& ranks) {
  const config::DataLoader& eval = need_eval(config);
  config::warn_unless(false, eval.sampler.node, "drop_last", "every picture is evaluated once");
  config::warn_unless(false, eval.sampler.node, "shuffle", "pictures are evaluated in the order of the list");
  const MadeDataset made = make_dataset(
      eval, {.class_num = config.arch.class_num, .image_shape = config.global.image_shape, .labels = true});
  require_memory(eval, {std::min(eval.sampler.batch_size, made.samples->size()), made.sample_bytes});
  return {made.samples, make_loader_options(eval, 0), ranks, {.name = "DataLoader.Eval"}};
}

}  // namespace

Evaluator::Evaluator(const config::TrainConfig& config, const train::Ranks& ranks)
    : ranks_(ranks),
      print_step_(config.global.print_batch_step),
      batches_(eval_batches(config, ranks)),
      losses_(make_losses(config.loss.eval, config.document.section("Loss").at("Eval"))),
      metrics_(make_metrics(config.metric.eval, config.document.section("Metric").at("Eval"))),
      meter_(losses_.names_with_total(), metrics_.all, {.slots = batches_.shard().batches()}) {}

void Evaluator::measure(const RoleModels& net, const AmpOptions& amp, const data::Batch& batch, int64_t iter) {
  if (batch.data.size(0) == 0) return;  // all of its pictures are bad
  const optim::Autocast low(
      {.device = ranks_.device().type(), .dtype = amp.dtype, .enabled = amp.level != AmpLevel::O0});
  const Labels labels{batch.target, batch.data.size(0)};
  const Outputs outputs = net.forward_main(batch.data);
  meter_.add({.losses = losses_(outputs, labels).with_total(),
              .sums = metrics_.measure(outputs, labels),
              .rows = batch.data.size(0),
              .step = iter,
              .slot = batches_.shard().batch_number(iter)});
}

Results Evaluator::run(const RoleModels& net, const AmpOptions& amp, const EvaluationOptions& options) {
  const torch::NoGradGuard no_grad;
  const watch::PhaseScope phase(watch::Phase::evaluation);
  net.set_training(false);
  meter_.reset();
  const std::string mark = options.averaged ? "[EMA]" : "";
  Place place{.epoch = options.epoch, .steps = batches_.shard().steps()};
  Pace pace;
  bool told = false;
  batches_.each([&](const data::Batch& batch) {
    pace.read();
    measure(net, amp, batch, place.step);
    pace.done(batch.data.size(0));
    // Ranks may have different numbers of batches, so each logs its own numbers on the way.
    if (place.step % print_step_ == 0) log_info("{}", eval_line(place, mark, meter_.own(), pace));
    ++place.step;
    if (told || !options.signalled || !options.signalled()) return;
    told = true;
    log_info(
        "a signal has come: this evaluation is finished first; the epoch is saved, and a second Ctrl-C or SIGTERM ends "
        "at once");
  });
  const Results results = meter_.measured(ranks_).results;
  log_info("{}", eval_average_line(place, mark, results));
  for (const auto& [name, value] : results) watch::report((options.averaged ? "eval_ema/" : "eval/") + name, value);
  return results;
}

}  // namespace trireme::trainer
