#include "trireme/train/evaluation.h"

#include <torch/torch.h>

#include "trireme/train/eval_batches.h"
#include "trireme/train/step_checks.h"
#include "trireme/train/stopwatch.h"

namespace trireme {
namespace {

struct Hooks {
  Callbacks::Hook batch_begin, batch_end;
};

constexpr Hooks kEval{&Callback::on_eval_batch_begin, &Callback::on_eval_batch_end};
constexpr Hooks kPredict{&Callback::on_predict_batch_begin, &Callback::on_predict_batch_end};

EvalBatches batches_of(Learner& learner, const Samples& samples, Run& run, const EvaluationOptions& options,
                       const char* name) {
  data::LoaderOptions loader{.batch_size = run.batch_size, .workers = options.num_workers};
  if (samples.loader())
    loader = {.batch_size = samples.loader()->options().batch_size, .workers = samples.loader()->options().workers};
  run.batch_size = loader.batch_size;
  return {samples.dataset(), loader, learner.team(), {.name = name, .limit = options.limit}};
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

/// Calls `use` with each batch of this rank, between the callbacks' hooks; with the averaged weights where there are
/// any.
template <typename Use>
void each_batch(Learner& learner, EvalBatches& batches, const Callbacks& callbacks, Run& run, const Hooks& hooks,
                Use use) {
  const auto averaged = learner.averaged_weights();
  Stopwatch watch;
  batches.each([&](const data::Batch& batch) {
    run.reader_seconds += watch.lap();
    callbacks.call(hooks.batch_begin, run);
    use(train::input_and_label(batch));
    run.batch_seconds += watch.lap();
    callbacks.call(hooks.batch_end, run);
    ++run.step;
  });
  if (run.step > 0) run.step = run.steps - 1;  // as after any other loop, the last one
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
  EvalBatches batches = batches_of(learner, samples, run, options, "evaluation");
  const Share& share = batches.share();
  describe(run, Mode::eval, share);
  Meter meter({"loss"}, learner.metrics(), {.slots = share.batches()});
  callbacks.call(&Callback::on_eval_begin, run);
  each_batch(learner, batches, callbacks, run, kEval, [&](const data::Batch& batch) {
    if (batch.data.size(0) == 0) return;  // all bad
    meter.add(learner.numbers(learner.evaluate(batch.data, batch.target), batch.target, run.step,
                              share.batch_number(run.step)));
  });
  run.logs = meter.measured(learner.team()).results;
  run.logged = true;
  callbacks.call(&Callback::on_eval_end, run);
  return run.logs;
}

torch::Tensor run_prediction(Learner& learner, const Samples& samples, const Callbacks& callbacks, Run& run,
                             const EvaluationOptions& options) {
  EvalBatches batches = batches_of(learner, samples, run, options, "prediction");
  const Share& share = batches.share();
  describe(run, Mode::predict, share);
  std::vector<torch::Tensor> outputs;
  callbacks.call(&Callback::on_predict_begin, run);
  each_batch(learner, batches, callbacks, run, kPredict, [&](const data::Batch& batch) {
    outputs.push_back(share.with_gaps(outputs_of(learner, share, batch, run), run.step));
  });
  const torch::Tensor mine = outputs.empty() ? torch::Tensor() : torch::cat(outputs);
  const torch::Tensor all = share.in_order(learner.team().rows_of_all(mine));
  callbacks.call(&Callback::on_predict_end, run);
  return all;
}

}  // namespace trireme
