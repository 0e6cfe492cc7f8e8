#include "trireme/train/evaluation.h"

#include <torch/torch.h>

#include <algorithm>

#include "trireme/core/error.h"
#include "trireme/train/eval_batches.h"
#include "trireme/train/pace.h"
#include "trireme/watch/report.h"

namespace trireme::train {
namespace {

struct Hooks {
  CallbackList::Hook batch_begin, batch_end;
};

constexpr Hooks kEval{&Callback::on_eval_batch_begin, &Callback::on_eval_batch_end};
constexpr Hooks kPredict{&Callback::on_predict_batch_begin, &Callback::on_predict_batch_end};

EvalBatches batches_of(Learner& learner, const Samples& samples, Run& run, const EvaluationOptions& options,
                       const char* name) {
  data::LoaderOptions loader{.batch_size = run.batch_size, .workers = options.num_workers};
  if (samples.loader())
    loader = {.batch_size = samples.loader()->options().batch_size, .workers = samples.loader()->options().workers};
  run.batch_size = loader.batch_size;
  return {samples.dataset(), loader, learner.ranks(), {.name = name, .limit = options.limit}};
}

void describe(Run& run, Run::Mode mode, const EvalShard& shard) {
  run.mode = mode;
  run.step = 0;
  run.steps = shard.steps();
  run.samples = shard.samples();
  run.logs = {};
  run.logged = false;
  run.reader_seconds = run.batch_seconds = 0;
}

/// Calls `use` with each batch of this rank, between the callbacks' hooks; with the weights for evaluations.
template <typename Use>
void each_batch(Learner& learner, EvalBatches& batches, const CallbackList& callbacks, Run& run, const Hooks& hooks,
                Use use) {
  const auto weights = learner.evaluation_weights();
  Pace pace;
  batches.each([&](const data::Batch& batch) {
    pace.read();
    run.reader_seconds = pace.reader_seconds();
    callbacks.call(hooks.batch_begin, run);
    use(batch);
    pace.done(batch.data.size(0));
    run.batch_seconds = pace.work_seconds();
    callbacks.call(hooks.batch_end, run);
    ++run.step;
  });
  if (run.step > 0) run.step = run.steps - 1;  // as after any other loop, the last one
}

/// Also of a batch whose samples are all bad: what replaces the first one tells the shape of an output.
Tensors outputs_of(Learner& learner, const EvalShard& shard, const data::Batch& batch, const Run& run) {
  const bool all_bad = batch.data.size(0) == 0;
  const Tensors inputs = learner.inputs_of(all_bad ? data::stack({shard.get(run.step * run.batch_size, 0)}) : batch);
  Tensors outputs = learner.predict(inputs);
  for (torch::Tensor& output : outputs) {
    if (output.dim() == 0 || output.size(0) != inputs[0].size(0))
      throw UsageError("Model::predict: an output is {} for {} samples; it must have one row for each sample",
                       data::shape_text(output), inputs[0].size(0));
    output = output.cpu();
    output = shard.with_gaps(all_bad ? output.narrow(0, 0, 0) : output, run.step);
  }
  return outputs;
}

/// How many outputs every batch of every rank has. A rank without a batch does not know.
size_t output_count(const Ranks& ranks, const std::vector<Tensors>& by_batch) {
  std::vector<double> counts;
  for (const Tensors& batch : by_batch) counts.push_back(static_cast<double>(batch.size()));
  std::vector<double> all;
  for (const std::vector<double>& one : ranks.numbers_of_all(counts)) all.insert(all.end(), one.begin(), one.end());
  const auto [least, most] = std::minmax_element(all.begin(), all.end());
  if (all.empty()) return 0;
  if (*least != *most)
    throw UsageError(
        "Model::predict_outputs: the network returns {} outputs for one batch and {} for another; it must return the "
        "same number each time",
        *least, *most);
  return static_cast<size_t>(*most);
}

/// The rows of all ranks, of each output.
Tensors gather(const Ranks& ranks, const EvalShard& shard, const std::vector<Tensors>& by_batch) {
  Tensors all;
  const size_t count = output_count(ranks, by_batch);
  for (size_t output = 0; output < count; ++output) {
    Tensors mine;
    for (const Tensors& batch : by_batch) mine.push_back(batch[output]);
    all.push_back(shard.in_order(ranks.rows_of_all(mine.empty() ? torch::Tensor() : torch::cat(mine))));
  }
  return all;
}

}  // namespace

void require_one_output(const Tensors& outputs) {
  if (outputs.size() != 1)
    throw UsageError("Model: the network returns {} outputs; call predict_outputs() for a list of them",
                     outputs.size());
}

Results run_evaluation(Learner& learner, const Samples& samples, const CallbackList& callbacks, Run& run,
                       const EvaluationOptions& options) {
  const watch::PhaseScope phase(watch::Phase::evaluation);
  EvalBatches batches = batches_of(learner, samples, run, options, "evaluation");
  const EvalShard& shard = batches.shard();
  describe(run, Run::Mode::eval, shard);
  Meter meter({"loss"}, learner.metrics(), {.slots = shard.batches()});
  callbacks.call(&Callback::on_eval_begin, run);
  each_batch(learner, batches, callbacks, run, kEval, [&](const data::Batch& batch) {
    if (batch.data.size(0) == 0) return;  // all bad
    const ModelBatch split = learner.split(batch);
    meter.add(learner.numbers(learner.evaluate(split), split, run.step, shard.batch_number(run.step)));
  });
  run.logs = meter.measured(learner.ranks()).results;
  for (const auto& [name, value] : run.logs) watch::report("eval/" + name, value);
  run.logged = true;
  callbacks.call(&Callback::on_eval_end, run);
  return run.logs;
}

Tensors run_prediction(Learner& learner, const Samples& samples, const CallbackList& callbacks, Run& run,
                       const EvaluationOptions& options) {
  EvalBatches batches = batches_of(learner, samples, run, options, "prediction");
  const EvalShard& shard = batches.shard();
  describe(run, Run::Mode::predict, shard);
  std::vector<Tensors> outputs;
  callbacks.call(&Callback::on_predict_begin, run);
  each_batch(learner, batches, callbacks, run, kPredict, [&](const data::Batch& batch) {
    outputs.push_back(outputs_of(learner, shard, batch, run));
    if (options.one_output) require_one_output(outputs.back());
  });
  const Tensors all = gather(learner.ranks(), shard, outputs);
  callbacks.call(&Callback::on_predict_end, run);
  return all;
}

}  // namespace trireme::train
