#include "trireme/train/trainer/evaluator.h"

#include <torch/torch.h>

#include <algorithm>

#include "trireme/core/error.h"
#include "trireme/core/log.h"
#include "trireme/train/trainer/make_dataset.h"
#include "trireme/train/trainer/memory.h"

namespace trireme::trainer {
namespace {

const config::DataLoader& need_eval(const config::TrainConfig& config) {
  config.require_loader("Eval", "evaluate on");
  return *config.eval;
}

std::shared_ptr<Share> share_of(const config::TrainConfig& config, const Team& team) {
  const config::DataLoader& eval = need_eval(config);
  const MadeDataset made = make_dataset(
      eval, {.class_num = config.arch.class_num, .image_shape = config.global.image_shape, .labels = true});
  require_memory(eval, {std::min(eval.sampler.batch_size, made.samples->size()), made.sample_bytes});
  return std::make_shared<Share>(made.samples, make_loader_options(eval, 0).batch_size, team.me());
}

}  // namespace

Evaluator::Evaluator(const config::TrainConfig& config, const Team& team)
    : team_(team),
      print_step_(config.global.print_batch_step),
      share_(share_of(config, team)),
      bad_(share_, "DataLoader.Eval"),
      losses_(make_losses(config.loss.eval, config.document.section("Loss").at("Eval"))),
      scores_(losses_.names(), make_metrics(config.metric.eval, config.document.section("Metric").at("Eval")),
              Scores::Order::losses_first) {
  if (share_->size() == 0) return;
  data::LoaderOptions options = make_loader_options(need_eval(config), 0);
  options.shuffle = options.drop_last = false;
  loader_.emplace(share_, options, RankInfo{}, team.device());
}

void Evaluator::measure(const Network& net, const Precision& precision, const data::Batch& batch, int64_t iter) {
  if (batch.data.size(0) == 0) return;  // all of its pictures are bad
  const optim::Autocast low({.device = precision.device, .dtype = precision.dtype, .enabled = precision.low_eval});
  const Labels labels{batch.target, batch.data.size(0)};
  const Outputs outputs = net.forward_main(batch.data);
  scores_.add({losses_(outputs, labels), outputs, labels, iter});
}

Results Evaluator::run(const Network& net, const Precision& precision, int64_t epoch,
                       const std::function<bool()>& stopping) {
  const torch::NoGradGuard no_grad;
  net.set_training(false);
  scores_.reset();
  Place place{.epoch = epoch, .iter = 0, .iters = share_->steps()};
  Pace pace;
  bool told = false;
  if (loader_) {
    loader_->set_epoch(0);
    for (const data::Batch& batch : *loader_) {
      pace.read();
      measure(net, precision, batch, place.iter);
      pace.done(batch.data.size(0));
      // Ranks may have different numbers of batches, so on the way each tells of its own only.
      if (place.iter % print_step_ == 0) log_info("{}", eval_line(place, scores_.own(), pace));
      ++place.iter;
      if (told || !stopping || !stopping()) continue;
      told = true;
      log_info("a signal has come: this evaluation is finished first; the epoch is saved, Ctrl-C again ends at once");
    }
  }
  bad_.look(team_.me(), [this](const auto& mine) { return team_.numbers_of_all(mine); });
  const Scores::Total total = scores_.total(team_);
  log_info("{}", eval_average_line(place, total.results));
  return total.results;
}

Judged judge(const Results& results) {
  for (const auto& [name, value] : results)
    if (name.starts_with("top")) return {name, value, true};
  return {"loss", results.contains("loss") ? results.at("loss") : 0, false};
}

}  // namespace trireme::trainer
