#include "trireme/train/evaluation.h"

#include <torch/torch.h>

#include "trireme/core/error.h"
#include "trireme/data/loader.h"
#include "trireme/train/bad_total.h"
#include "trireme/train/share.h"
#include "trireme/train/stopwatch.h"

namespace trireme {
namespace {

struct Hooks {
  Callbacks::Hook batch_begin, batch_end;
};

constexpr Hooks kEval{&Callback::on_eval_batch_begin, &Callback::on_eval_batch_end};
constexpr Hooks kPredict{&Callback::on_predict_batch_begin, &Callback::on_predict_batch_end};

std::shared_ptr<Share> share_of(Learner& learner, const Samples& samples, Run& run, std::optional<int64_t> limit) {
  if (samples.loader()) run.batch_size = samples.loader()->options().batch_size;
  return std::make_shared<Share>(samples.dataset(), run.batch_size, learner.team().me(), limit);
}

int workers_of(const Samples& samples, const EvaluationOptions& options) {
  return samples.loader() ? samples.loader()->options().workers : options.num_workers;
}

// Every evaluation tells anew what it had to leave out.
void look_for_bad(Learner& learner, const Samples& samples, const char* what) {
  const Team& team = learner.team();
  BadTotal(samples.dataset(), what).look(team.me(), [&](const auto& mine) { return team.numbers_of_all(mine); });
}

void describe(Run& run, Mode mode, const Share& share) {
  run.mode = mode;
  run.step = 0;
  run.steps = share.steps();
  run.samples = share.samples();
  run.logs = {};
  run.logged = false;
  run.reader_seconds = run.batch_seconds = 0;
}

/// Calls `use` with each batch of this rank's share.
template <typename Use>
void each_batch(Learner& learner, const std::shared_ptr<Share>& share, const Callbacks& callbacks, Run& run,
                const Hooks& hooks, int workers, Use use) {
  if (share->size() == 0) return;
  data::Loader loader(share, {.batch_size = run.batch_size, .workers = workers}, RankInfo{}, learner.team().device());
  Stopwatch watch;
  for (auto batch = loader.begin(); batch != data::Loader::end(); ++batch, ++run.step) {
    run.reader_seconds += watch.lap();
    callbacks.call(hooks.batch_begin, run);
    use(*batch);
    run.batch_seconds += watch.lap();
    callbacks.call(hooks.batch_end, run);
  }
  run.step = run.steps - 1;  // as after any other loop, the last one
}

/// Also of a batch whose samples are all bad: what replaces the first one tells the shape of an output.
torch::Tensor outputs_of(Learner& learner, const Share& share, const data::Batch& batch, const Run& run) {
  if (batch.data.size(0) > 0) return learner.predict(batch.data).cpu();
  const data::Sample other = share.get(run.step * run.batch_size, 0);
  return learner.predict(other.data.unsqueeze(0)).cpu().narrow(0, 0, 0);
}

}  // namespace

Results run_evaluation(Learner& learner, const Samples& samples, const Callbacks& callbacks, Run& run,
                       const EvaluationOptions& options) {
  const auto share = share_of(learner, samples, run, options.limit);
  describe(run, Mode::eval, *share);
  Meter meter(learner.metrics(), share->batches());
  callbacks.call(&Callback::on_eval_begin, run);
  each_batch(learner, share, callbacks, run, kEval, workers_of(samples, options), [&](const data::Batch& batch) {
    if (batch.data.size(0) == 0) return;  // all bad
    const Scored scored = learner.evaluate(batch.data, batch.target);
    meter.add(scored, batch.target, run.step, share->batch_number(run.step));
  });
  look_for_bad(learner, samples, "evaluation");
  run.logs = meter.measured(learner.team()).results;
  run.logged = true;
  callbacks.call(&Callback::on_eval_end, run);
  return run.logs;
}

torch::Tensor run_prediction(Learner& learner, const Samples& samples, const Callbacks& callbacks, Run& run,
                             const EvaluationOptions& options) {
  const auto share = share_of(learner, samples, run, options.limit);
  describe(run, Mode::predict, *share);
  std::vector<torch::Tensor> outputs;
  callbacks.call(&Callback::on_predict_begin, run);
  each_batch(learner, share, callbacks, run, kPredict, workers_of(samples, options), [&](const data::Batch& batch) {
    outputs.push_back(share->with_gaps(outputs_of(learner, *share, batch, run), run.step));
  });
  look_for_bad(learner, samples, "prediction");
  const torch::Tensor mine = outputs.empty() ? torch::Tensor() : torch::cat(outputs);
  const torch::Tensor all = share->in_order(learner.team().rows_of_all(mine));
  callbacks.call(&Callback::on_predict_end, run);
  return all;
}

}  // namespace trireme
