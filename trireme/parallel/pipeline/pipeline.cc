#include "trireme/parallel/pipeline/pipeline.h"

#include <torch/torch.h>

#include <algorithm>
#include <bit>
#include <exception>
#include <functional>
#include <set>

#include "trireme/comm/collectives.h"
#include "trireme/comm/group_state.h"
#include "trireme/comm/members.h"
#include "trireme/core/log.h"
#include "trireme/core/text.h"
#include "trireme/nn/evaluation_mode.h"
#include "trireme/optim/clip.h"
#include "trireme/optim/describe_options.h"
#include "trireme/optim/optimizers.h"
#include "trireme/optim/split_tensors.h"
#include "trireme/parallel/init.h"
#include "trireme/parallel/parameter_check.h"
#include "trireme/parallel/pipeline/batch_run.h"
#include "trireme/parallel/pipeline/pipeline_module.h"
#include "trireme/parallel/pipeline/plan.h"
#include "trireme/parallel/pipeline/reports.h"
#include "trireme/parallel/random.h"
#include "trireme/parallel/same_settings.h"
#include "trireme/parallel/sharded_data_parallel.h"

namespace trireme {
namespace {

using parallel::Action;
using parallel::BatchCall;
using parallel::BatchReports;
using parallel::BatchRun;
using parallel::BatchWork;
using parallel::LocalStage;
using parallel::PipelineModule;
using parallel::ScheduleTable;
using parallel::StageModule;
using parallel::StagePlan;
using torch::Tensor;

Group group_of_own(const Group& group) {
  if (!group.is_member()) throw UsageError("Pipeline: this process is not a member of the group it was given");
  return duplicate(group);
}

PipelineOptions with_device(PipelineOptions options) {
  if (!options.device) options.device = init_parallel_env().device();
  return options;
}

// Micro-batches of the same number of rows, or one more.
std::vector<std::vector<Tensor>> micro_batches(const std::vector<Tensor>& tensors, int count) {
  std::vector<std::vector<Tensor>> parts(static_cast<size_t>(count));
  for (const Tensor& tensor : tensors) {
    const std::vector<Tensor> cut = tensor.detach().tensor_split(count);
    for (size_t i = 0; i < parts.size(); ++i) parts[i].push_back(cut[i]);
  }
  return parts;
}

}  // namespace

class Pipeline::State final : public GradientExchange {
 public:
  State(std::vector<PipelineLayer> layers, const Group& group, const PipelineOptions& options)
      : options_(with_device(options)),
        pipe_(group_of_own(group)),
        plan_(parallel::plan_of(std::move(layers), options_, pipe_)),
        wire_(pipe_, *options_.device),
        modules_(parallel::make_stages(plan_, *options_.device, pipe_)),
        root_(std::make_shared<PipelineModule>(plan_, modules_, pipe_)),
        training_(parallel::schedule_table(options.schedule, plan_.shape)),
        evaluation_(forwards_of(parallel::schedule_table(Schedule::fill_drain, plan_.shape))) {
    if (options.data.is_member() && options.data.size() > 1) data_ = group_of_own(options.data);
    reports_.emplace(pipe_, data_, modules_);
    if (data_.is_member() && options.shard) root_->ties().require_one_on_each_rank();
    for (const auto& module : modules_) stages_.push_back({module, exchange_of(module)});
    mark_parameters();
    warn_of_pipelines_beside();
    if (pipe_.size() > 1 && is_first() && (!data_.is_member() || data_.rank() == 0)) log_stages();
  }

  const Group& group() const override { return data_.is_member() ? data_ : pipe_; }

  PipelineModule& root() { return *root_; }
  PipelineModule::NamedTensors named_parameters() const {
    PipelineModule::NamedTensors all;
    for (const auto& item : root_->optimized()) all.insert(item.key(), optim::piece_of(item.value()));
    return all;
  }
  std::vector<Tensor> parameters() const { return named_parameters().values(); }
  std::string describe_stages() const;

  using Kind = BatchCall::Kind;
  /// The same error on every rank, or what all know of the batch.
  void agree(const BatchCall& batch);

  Tensor train(const BatchCall& batch, const std::function<Tensor(const Tensor&)>& scaled);
  Tensor evaluate(const BatchCall& batch);
  std::vector<Tensor> predict(const BatchCall& batch);

 private:
  static ScheduleTable forwards_of(ScheduleTable table) {
    for (std::vector<Action>& actions : table)
      std::erase_if(actions, [](const Action& action) { return action.kind != Action::Kind::forward; });
    return table;
  }
  std::shared_ptr<GradientExchange> exchange_of(const std::shared_ptr<StageModule>& module) const;
  void mark_parameters();
  void warn_of_pipelines_beside() const;
  void log_stages() const;
  bool is_first() const { return pipe_.rank() == 0; }
  bool is_last() const { return pipe_.rank() == pipe_.size() - 1; }
  std::string me() const { return own_place(pipe_); }
  BatchReports::Replicas refuse_along_data(const std::function<void()>& check,
                                           const std::function<uint64_t()>& replica = {});
  std::string problem_of(const BatchCall& batch) const;
  void check_optimizer(const torch::optim::Optimizer& optimizer, std::string& problem) const;
  void check_tied();
  bool is_checked() const;
  void check_frozen_stages();
  void check_options(const torch::optim::Optimizer* optimizer) const;
  BatchWork work_of(const BatchCall& batch) const;
  BatchRun run(BatchWork work, const ScheduleTable& table);
  template <typename Result>
  Result or_abort(const std::function<Result()>& batch);
  void abort(const std::string& reason) override;
  Tensor shared_loss(const Tensor& mine) const;

  const PipelineOptions options_;
  const Group pipe_;
  const StagePlan plan_;
  parallel::Wire wire_;
  const std::vector<std::shared_ptr<StageModule>> modules_;
  const std::shared_ptr<PipelineModule> root_;
  const ScheduleTable training_, evaluation_;
  Group data_;
  std::vector<LocalStage> stages_;
  std::shared_ptr<const optim::SpreadModel> spread_;
  bool failed_ = false;
  std::optional<BatchReports> reports_;
  int64_t batches_ = 0;          // that were trained
  BatchReports::Agreed agreed_;  // on the batch
};

std::shared_ptr<GradientExchange> Pipeline::State::exchange_of(const std::shared_ptr<StageModule>& module) const {
  if (!data_.is_member() || module->parameters().empty()) return nullptr;
  if (options_.shard) return std::make_shared<ShardSync>(module, data_, *options_.shard, root_->ties().keepers());
  return std::make_shared<GradientSync>(module, data_, options_.data_options);
}

void Pipeline::State::mark_parameters() {
  const auto over_ranks = [pipe = pipe_, device = *options_.device](ReduceOp op) {
    return [pipe, device, op](const Tensor& value) {
      const Tensor shared = value.detach().to(torch::TensorOptions(device).dtype(torch::kDouble), false, /*copy=*/true);
      all_reduce(shared, op, pipe);
      value.copy_(shared);
    };
  };
  spread_ = std::make_shared<optim::SpreadModel>(
      optim::SpreadModel{.sum = over_ranks(ReduceOp::sum), .max = over_ranks(ReduceOp::max)});
  for (const Tensor& parameter : parameters()) optim::mark_spread(parameter, spread_);
}

// Of a mesh whose other axes neither average nor split layers.
void Pipeline::State::warn_of_pipelines_beside() const {
  if (data_.is_member() || options_.data.is_member() || pipe_.state().axis.empty()) return;
  size_t ranks = 1;  // over which layers are split
  for (const auto& split : parallel::replicas_of(*root_).splits) ranks = std::max(ranks, split->ranks.size());
  const Tensor most = torch::tensor({static_cast<int64_t>(ranks)}, torch::kLong);
  all_reduce(most, ReduceOp::max, pipe_);
  const int64_t pipelines = Group::world().size() / (pipe_.size() * most.item<int64_t>());
  if (pipelines > 1 && is_first() && Group::world().rank() == 0)
    log_warning(
        "Pipeline: {} pipelines of {} ranks run beside each other, and nothing averages their gradients: give the axis "
        "of the mesh that they lie along, .data = mesh[\"data\"]",
        pipelines, pipe_.size() * most.item<int64_t>());
}

void Pipeline::State::log_stages() const {
  std::vector<std::string> stages;
  for (int stage = 0; stage < plan_.shape.stages(); ++stage) stages.push_back(plan_.describe_stage(stage));
  log_info("pipeline of {} ranks, {} with {} micro-batches: {}", pipe_.size(), parallel::name_of(options_.schedule),
           options_.micro_batches, join(stages, " | "));
}

std::string Pipeline::State::describe_stages() const {
  std::vector<std::string> lines;
  for (const auto& module : modules_)
    lines.push_back(fmt::format("stage {} of {}: {}", module->stage(), plan_.shape.stages(),
                                plan_.describe_stage(module->stage())));
  return join(lines, "\n");
}

void Pipeline::State::check_optimizer(const torch::optim::Optimizer& optimizer, std::string& problem) const {
  std::set<const void*> mine;
  for (const Tensor& parameter : parameters())
    if (parameter.requires_grad()) mine.insert(parameter.unsafeGetTensorImpl());
  size_t others = 0;
  for (const Tensor& parameter : optim::parameters_of(optimizer))
    if (parameter.requires_grad() && mine.erase(parameter.unsafeGetTensorImpl()) == 0) ++others;
  if (others > 0 || !mine.empty())
    problem = fmt::format(
        "the optimizer of {} has {} parameters that are not this pipeline's, and lacks {} that are; make it from "
        "pipe.parameters()",
        me(), others, mine.size());
  else if (const std::string complaint = optim::complaint_about_parts(optimizer); !complaint.empty())
    problem = fmt::format("{}: {}", me(), complaint);
}

std::string Pipeline::State::problem_of(const BatchCall& batch) const {
  const bool needs_targets = batch.kind != Kind::predict;
  const int64_t inputs = parallel::rows_of(batch.inputs.list()), targets = parallel::rows_of(batch.targets.list());
  if (failed_) return fmt::format("{} has failed in an earlier batch; make a new Pipeline", me());
  if (is_first() && inputs < 0)
    return fmt::format("{} is the first and needs inputs{}", me(),
                       inputs == -2 ? " that have the same number of rows" : "");
  const auto is_here = [&](const Tensor& tensor) { return tensor.device().type() == options_.device->type(); };
  const std::vector<Tensor>& tensors = batch.inputs.list();
  if (is_first() && std::none_of(tensors.begin(), tensors.end(), is_here))
    return fmt::format("{} computes on {}, but its inputs are on {}; move them there, or give the Loader that device",
                       me(), options_.device->str(), tensors[0].device().str());
  if (needs_targets && is_last() && targets < 0)
    return fmt::format("{} is the last and needs targets{}", me(),
                       targets == -2 ? " that have the same number of rows" : "");
  if (needs_targets && !options_.loss) return fmt::format("{} has no loss; set .loss in PipelineOptions", me());
  if (batch.optimizer && !enabled())
    return fmt::format(
        "{} calls train_batch() while no_sync() lives; its step would be of this rank alone: call accumulate()", me());
  if (!root_->ties().are_joined())
    return fmt::format(
        "tied parameters of {} have parted: types, device or memory were changed after the pipeline was made; give the "
        "type in the layers' functions, and .device",
        me());
  std::string problem;
  if (batch.optimizer) check_optimizer(*batch.optimizer, problem);
  return problem;
}

// predict() exchanges nothing along the data axis, so that each pipeline may call it as often as it has batches.
void Pipeline::State::agree(const BatchCall& batch) {
  const auto along_pipe = [&] {
    agreed_ = reports_->agree_along_pipe(batch, problem_of(batch), enabled(), options_.micro_batches);
  };
  if (batch.kind == Kind::predict) return along_pipe();
  const auto replica = [&] {
    return c10::hash_combine(static_cast<size_t>(batch.kind), batch.kind == Kind::train ? agreed_.trained : 0);
  };
  if (refuse_along_data(along_pipe, replica) == BatchReports::Replicas::differ)
    reports_->refuse_other_replicas(batch.kind);
}

BatchReports::Replicas Pipeline::State::refuse_along_data(const std::function<void()>& check,
                                                          const std::function<uint64_t()>& replica) {
  if (!data_.is_member() || failed_) {
    check();
    return BatchReports::Replicas::alike;
  }
  const auto check_or_abort = [&] {
    try {
      check();
    } catch (const UsageError&) {
      throw;
    } catch (const std::exception& error) {
      failed_ = true;
      abort(without_backtrace(error));
      throw;
    }
  };
  return reports_->refuse_along_data(check_or_abort, replica);
}

// As DataParallel does: soon after the start, then more and more rarely.
bool Pipeline::State::is_checked() const {
  return std::has_single_bit(static_cast<uint64_t>(batches_));
}

void Pipeline::State::check_tied() {
  if (is_checked()) refuse_along_data([&] { root_->ties().require_equal(pipe_); });
}

// A stage that is trained is compared over the data axis by its backwards; a frozen one has none. agree() has seen that
// it is frozen on all of these ranks.
void Pipeline::State::check_frozen_stages() {
  const int interval = options_.data_options.parameter_check_interval;
  if (interval == 0 || (!is_checked() && batches_ % interval != 0)) return;
  for (const LocalStage& stage : stages_) {
    const std::vector<Tensor> all = stage.module->parameters();
    const bool trains = std::any_of(all.begin(), all.end(), [](const Tensor& one) { return one.requires_grad(); });
    if (!stage.exchange || trains) continue;
    std::optional<GatheredParameters> whole;
    if (const auto shards = std::dynamic_pointer_cast<ShardSync>(stage.exchange)) whole.emplace(shards);
    parallel::require_equal_parameters(*stage.module, data_, fmt::format("batch number {}", batches_));
  }
}

// Ranks that step a part of a stage each share nothing in which other learning rates would show.
void Pipeline::State::check_options(const torch::optim::Optimizer* optimizer) const {
  if (optimizer && data_.is_member() && is_checked())
    parallel::require_same_settings("Pipeline", optim::describe_options(*optimizer), data_);
}

BatchWork Pipeline::State::work_of(const BatchCall& batch) const {
  BatchWork work;
  const int count = options_.micro_batches;
  if (is_first()) work.inputs = micro_batches(batch.inputs.list(), count);
  if (batch.kind == Kind::predict) return work;
  if (is_last()) work.targets = micro_batches(batch.targets.list(), count);
  work.loss = options_.loss;
  for (int i = 0; i < count; ++i) {
    const int64_t rows = agreed_.rows / count + (i < agreed_.rows % count ? 1 : 0);
    work.weights.push_back(static_cast<double>(rows) / static_cast<double>(agreed_.rows));
  }
  return work;
}

BatchRun Pipeline::State::run(BatchWork work, const ScheduleTable& table) {
  wire_.begin(table, plan_.shape, agreed_.signature, options_.dynamic_shapes);
  BatchRun one(plan_, stages_, wire_, std::move(work));
  one.run(table[static_cast<size_t>(pipe_.rank())]);
  return one;
}

// A failure anywhere in a batch ends it on every rank, with the reason.
template <typename Result>
Result Pipeline::State::or_abort(const std::function<Result()>& batch) {
  try {
    return batch();
  } catch (const std::exception& error) {
    failed_ = true;  // messages may be under way that nobody will take
    abort(without_backtrace(error));
    throw;
  }
}

// Of everything in which another rank may wait for this one, now or later in the batch.
void Pipeline::State::abort(const std::string& reason) {
  for (const LocalStage& stage : stages_)
    if (stage.exchange) stage.exchange->abort(reason);
  root_->ties().abort(reason);
  if (data_.is_member()) data_.abort(reason);
  if (pipe_.size() > 1) pipe_.abort(reason);
}

// The last rank's, averaged over the data axis.
Tensor Pipeline::State::shared_loss(const Tensor& mine) const {
  const Tensor loss = torch::zeros({}, torch::TensorOptions(*options_.device).dtype(torch::kDouble));
  if (is_last()) {
    loss.copy_(mine);
    if (data_.is_member()) all_reduce(loss, ReduceOp::avg, data_);
  }
  broadcast(loss, pipe_.size() - 1, pipe_);
  return loss;
}

Tensor Pipeline::State::train(const BatchCall& batch, const std::function<Tensor(const Tensor&)>& scaled) {
  const torch::AutoGradMode with_gradients(true);
  ++batches_;
  check_tied();  // throws on every rank by itself: an abort could come before another rank's verdict
  return or_abort<Tensor>([&] {
    check_frozen_stages();
    check_options(batch.optimizer);
    root_->ties().begin_batch();
    BatchWork work = work_of(batch);
    work.scaled = scaled;
    work.random.seed = detail::draw_random();
    work.exchange = enabled();
    const BatchRun done = run(std::move(work), training_);
    root_->ties().end_batch(enabled());
    return shared_loss(done.loss());
  });
}

Tensor Pipeline::State::evaluate(const BatchCall& batch) {
  const nn::EvaluationMode mode(*root_);
  const torch::NoGradGuard no_grad;
  return or_abort<Tensor>([&] { return shared_loss(run(work_of(batch), evaluation_).loss()); });
}

std::vector<Tensor> Pipeline::State::predict(const BatchCall& batch) {
  const nn::EvaluationMode mode(*root_);
  const torch::NoGradGuard no_grad;
  return or_abort<std::vector<Tensor>>([&] { return run(work_of(batch), evaluation_).outputs(); });
}

Pipeline::Pipeline(std::vector<PipelineLayer> layers, const Group& group, const PipelineOptions& options)
    : state_(std::make_shared<State>(std::move(layers), group, options)) {}

torch::Tensor Pipeline::train_batch(const BatchTensors& inputs, const BatchTensors& targets,
                                    torch::optim::Optimizer& optimizer, const PipelineStepOptions& options) {
  const parallel::BatchCall batch{.kind = parallel::BatchCall::Kind::train,
                                  .inputs = inputs,
                                  .targets = targets,
                                  .scaler = options.scaler,
                                  .clip_norm = options.clip_norm,
                                  .optimizer = &optimizer};
  state_->agree(batch);
  torch::Tensor loss =
      state_->train(batch, [&](const torch::Tensor& one) { return options.scaler ? options.scaler->scale(one) : one; });
  if (options.scaler && options.clip_norm > 0) options.scaler->unscale_(optimizer);
  if (options.clip_norm > 0) optim::clip_grad_norm(parameters(), options.clip_norm);
  if (options.scaler) {
    options.scaler->step(optimizer);
    options.scaler->update();
  } else {
    optimizer.step();
  }
  optimizer.zero_grad();
  return loss;
}

torch::Tensor Pipeline::accumulate(const BatchTensors& inputs, const BatchTensors& targets,
                                   const PipelineAccumulateOptions& options) {
  const parallel::BatchCall batch{
      .kind = parallel::BatchCall::Kind::train, .inputs = inputs, .targets = targets, .scaler = options.scaler};
  state_->agree(batch);
  return state_->train(batch, [&](const torch::Tensor& one) {
    const torch::Tensor part = one * options.share;
    return options.scaler ? options.scaler->scale(part) : part;
  });
}

torch::Tensor Pipeline::eval_batch(const BatchTensors& inputs, const BatchTensors& targets) {
  const parallel::BatchCall batch{.kind = parallel::BatchCall::Kind::evaluate, .inputs = inputs, .targets = targets};
  state_->agree(batch);
  return state_->evaluate(batch);
}

std::vector<torch::Tensor> Pipeline::predict(const BatchTensors& inputs) {
  const BatchTensors none;
  const parallel::BatchCall batch{.kind = parallel::BatchCall::Kind::predict, .inputs = inputs, .targets = none};
  state_->agree(batch);
  return state_->predict(batch);
}

std::vector<torch::Tensor> Pipeline::parameters() const {
  return state_->parameters();
}
torch::OrderedDict<std::string, torch::Tensor> Pipeline::named_parameters() const {
  return state_->named_parameters();
}
NoSync Pipeline::no_sync() {
  return NoSync(state_);
}
torch::nn::Module* Pipeline::operator->() const {
  return &state_->root();
}
std::string Pipeline::describe() const {
  return state_->describe_stages();
}

}  // namespace trireme
