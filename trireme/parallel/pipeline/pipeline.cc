#include "trireme/parallel/pipeline/pipeline.h"

#include <torch/torch.h>

#include <algorithm>
#include <array>
#include <bit>
#include <numeric>
#include <set>

#include "trireme/comm/collectives.h"
#include "trireme/core/log.h"
#include "trireme/core/text.h"
#include "trireme/nn/evaluation_mode.h"
#include "trireme/optim/clip.h"
#include "trireme/optim/optimizers.h"
#include "trireme/optim/split_tensors.h"
#include "trireme/parallel/pipeline/batch_run.h"
#include "trireme/parallel/pipeline/pipeline_module.h"
#include "trireme/parallel/pipeline/plan.h"
#include "trireme/parallel/together.h"

namespace trireme {
namespace {

using parallel::Action;
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
  std::vector<int> ranks(static_cast<size_t>(group.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return group.new_group(ranks);
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

// -1: there are none; -2: they have different numbers of rows.
int64_t rows_of(const std::vector<Tensor>& tensors) {
  if (tensors.empty()) return -1;
  for (const Tensor& tensor : tensors)
    if (!tensor.defined() || tensor.dim() == 0 || tensor.size(0) != tensors[0].size(0)) return -2;
  return tensors[0].size(0);
}

int64_t signature_of(const std::vector<Tensor>& tensors, bool training) {
  size_t hash = training ? 1 : 2;
  const auto mix = [&](int64_t value) { hash = c10::hash_combine(hash, std::hash<int64_t>()(value)); };
  for (const Tensor& tensor : tensors) {
    mix(static_cast<int64_t>(tensor.scalar_type()));
    mix(tensor.dim());
    for (const int64_t size : tensor.sizes()) mix(size);
  }
  return static_cast<int64_t>(hash);
}

}  // namespace

class Pipeline::State final : public GradientExchange {
 public:
  State(std::vector<PipelineLayer> layers, const Group& group, const PipelineOptions& options)
      : options_(options),
        pipe_(group_of_own(group)),
        plan_(parallel::plan_of(std::move(layers), options, pipe_)),
        wire_(pipe_, options.device),
        modules_(parallel::make_stages(plan_, options.device, pipe_)),
        root_(std::make_shared<PipelineModule>(plan_, modules_, pipe_)),
        training_(parallel::schedule_table(options.schedule, plan_.shape)),
        evaluation_(forwards_of(parallel::schedule_table(Schedule::fill_drain, plan_.shape))) {
    if (options.data.is_member() && options.data.size() > 1) data_ = group_of_own(options.data);
    if (data_.is_member() && options.shard) root_->ties().require_one_on_each_rank();
    for (const auto& module : modules_) stages_.push_back({module, exchange_of(module)});
    mark_parameters();
    if (pipe_.size() > 1 && is_first() && (!data_.is_member() || data_.rank() == 0)) log_stages();
  }

  const Group& group() const override { return data_.is_member() ? data_ : pipe_; }
  void set_enabled(bool enabled) override { enabled_ = enabled; }
  bool enabled() const override { return enabled_; }

  PipelineModule& root() { return *root_; }
  PipelineModule::NamedTensors named_parameters() const {
    PipelineModule::NamedTensors all;
    for (const auto& item : root_->optimized()) all.insert(item.key(), optim::piece_of(item.value()));
    return all;
  }
  std::vector<Tensor> parameters() const { return named_parameters().values(); }
  std::string describe_stages() const;

  enum class Kind { train, evaluate, predict };
  struct Batch {
    Kind kind;
    const BatchTensors& inputs;
    const BatchTensors& targets;
    const optim::GradScaler* scaler = nullptr;
    double clip_norm = 0;
    const torch::optim::Optimizer* optimizer = nullptr;
  };
  /// The same error on every rank, or the number of rows and the signature of the inputs.
  void agree(const Batch& batch);

  Tensor train(const Batch& batch, const std::function<Tensor(const Tensor&)>& scaled);
  Tensor evaluate(const Batch& batch);
  std::vector<Tensor> predict(const Batch& batch);

 private:
  static ScheduleTable forwards_of(ScheduleTable table) {
    for (std::vector<Action>& actions : table)
      std::erase_if(actions, [](const Action& action) { return action.kind != Action::Kind::forward; });
    return table;
  }
  std::shared_ptr<GradientExchange> exchange_of(const std::shared_ptr<StageModule>& module) const;
  void mark_parameters();
  void log_stages() const;
  bool is_first() const { return pipe_.rank() == 0; }
  bool is_last() const { return pipe_.rank() == pipe_.size() - 1; }
  std::string me() const {
    return fmt::format("pipe {} (rank {})", pipe_.rank(), pipe_.ranks()[static_cast<size_t>(pipe_.rank())]);
  }
  std::string problem_of(const Batch& batch) const;
  void check_optimizer(const torch::optim::Optimizer& optimizer, std::string& problem) const;
  void check_tied();
  BatchWork work_of(const Batch& batch) const;
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
  bool enabled_ = true;
  bool failed_ = false;
  int64_t batches_ = 0;  // that were trained
  int64_t rows_ = 0;     // of the batch
  uint64_t signature_ = 0;
};

std::shared_ptr<GradientExchange> Pipeline::State::exchange_of(const std::shared_ptr<StageModule>& module) const {
  const std::vector<Tensor> all = module->parameters();
  const bool trains = std::any_of(all.begin(), all.end(), [](const Tensor& one) { return one.requires_grad(); });
  if (!data_.is_member() || !trains) return nullptr;
  if (options_.shard) return std::make_shared<ShardSync>(module, data_, *options_.shard, root_->ties().keepers());
  return std::make_shared<GradientSync>(module, data_, options_.data_options);
}

void Pipeline::State::mark_parameters() {
  const auto over_ranks = [pipe = pipe_, device = options_.device](ReduceOp op) {
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
}

std::string Pipeline::State::problem_of(const Batch& batch) const {
  const bool needs_targets = batch.kind != Kind::predict;
  const int64_t inputs = rows_of(batch.inputs.list()), targets = rows_of(batch.targets.list());
  if (failed_) return fmt::format("{} has failed in an earlier batch; make a new Pipeline", me());
  if (is_first() && inputs < 0)
    return fmt::format("{} is the first and needs inputs{}", me(),
                       inputs == -2 ? " that have the same number of rows" : "");
  if (needs_targets && is_last() && targets < 0)
    return fmt::format("{} is the last and needs targets{}", me(),
                       targets == -2 ? " that have the same number of rows" : "");
  if (needs_targets && !options_.loss) return fmt::format("{} has no loss; set .loss in PipelineOptions", me());
  if (batch.optimizer && !enabled_)
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

void Pipeline::State::agree(const Batch& batch) {
  const std::string problem = problem_of(batch);
  enum Field { kProblem, kCall, kInputs, kTargets, kSignature, kClipNorm, kScale, kFields };
  const int64_t call = static_cast<int64_t>(batch.kind) + (batch.scaler ? 8 : 0) + (batch.optimizer ? 16 : 0) +
                       (batch.clip_norm > 0 ? 32 : 0) + (enabled_ ? 64 : 0);
  const Tensor mine = torch::tensor(
      {problem.empty() ? int64_t{0} : int64_t{1}, call, rows_of(batch.inputs.list()), rows_of(batch.targets.list()),
       signature_of(batch.inputs.list(), batch.kind == Kind::train), std::bit_cast<int64_t>(batch.clip_norm),
       std::bit_cast<int64_t>(batch.scaler ? batch.scaler->current_scale() : 1.0)},
      torch::kLong);
  const Tensor all = torch::empty({pipe_.size() * kFields}, torch::kLong);
  all_gather(all, mine, pipe_);
  const auto field = [&](int rank, Field which) { return all.const_data_ptr<int64_t>()[rank * kFields + which]; };
  const int last = pipe_.size() - 1;
  for (int rank = 0; rank <= last; ++rank)
    if (field(rank, kProblem) != 0)
      together(pipe_, [&] {
        if (!problem.empty()) throw UsageError("Pipeline: {}", problem);
      });
  for (int rank = 1; rank <= last; ++rank)
    if (field(rank, kCall) != field(0, kCall))
      throw UsageError(
          "Pipeline: pipe {} (rank {}) calls another function than pipe 0 (rank {}), or with other options (optimizer, "
          "scaler, clip_norm, no_sync); every rank makes the same calls",
          rank, pipe_.ranks()[static_cast<size_t>(rank)], pipe_.ranks()[0]);
  const auto require_same_number = [&](Field which, const char* name) {
    const auto number = [&](int rank) { return std::bit_cast<double>(field(rank, which)); };
    for (int rank = 1; rank <= last; ++rank)
      if (number(rank) != number(0))
        throw UsageError("Pipeline: {} is {} on pipe 0 (rank {}) and {} on pipe {} (rank {}); give every rank the same",
                         name, number(0), pipe_.ranks()[0], number(rank), rank,
                         pipe_.ranks()[static_cast<size_t>(rank)]);
  };
  require_same_number(kClipNorm, "clip_norm");
  require_same_number(kScale, "the scale of the loss");
  rows_ = field(0, kInputs);
  signature_ = static_cast<uint64_t>(field(0, kSignature));
  if (batch.kind != Kind::predict && field(last, kTargets) != rows_)
    throw UsageError("Pipeline: pipe 0 has inputs of {} rows, but pipe {} targets of {}", rows_, last,
                     field(last, kTargets));
  if (rows_ < options_.micro_batches)
    throw UsageError(
        "Pipeline: a batch of {} rows cannot be cut into {} micro-batches; take larger batches or fewer "
        "micro-batches",
        rows_, options_.micro_batches);
}

// As DataParallel does: soon after the start, then more and more rarely.
void Pipeline::State::check_tied() {
  if (batches_ < 1 || (batches_ & (batches_ - 1)) != 0) return;
  root_->ties().require_equal(pipe_);
}

BatchWork Pipeline::State::work_of(const Batch& batch) const {
  BatchWork work;
  const int count = options_.micro_batches;
  if (is_first()) work.inputs = micro_batches(batch.inputs.list(), count);
  if (batch.kind == Kind::predict) return work;
  if (is_last()) work.targets = micro_batches(batch.targets.list(), count);
  work.loss = options_.loss;
  for (int i = 0; i < count; ++i) {
    const int64_t rows = rows_ / count + (i < rows_ % count ? 1 : 0);
    work.weights.push_back(static_cast<double>(rows) / static_cast<double>(rows_));
  }
  return work;
}

BatchRun Pipeline::State::run(BatchWork work, const ScheduleTable& table) {
  wire_.begin(table, plan_.shape, signature_, options_.dynamic_shapes);
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
  const Tensor loss = torch::zeros({}, torch::TensorOptions(options_.device).dtype(torch::kDouble));
  if (is_last()) {
    loss.copy_(mine);
    if (data_.is_member()) all_reduce(loss, ReduceOp::avg, data_);
  }
  broadcast(loss, pipe_.size() - 1, pipe_);
  return loss;
}

Tensor Pipeline::State::train(const Batch& batch, const std::function<Tensor(const Tensor&)>& scaled) {
  const torch::AutoGradMode with_gradients(true);
  ++batches_;
  check_tied();  // throws on every rank by itself: an abort could come before another rank's verdict
  return or_abort<Tensor>([&] {
    root_->ties().begin_batch();
    BatchWork work = work_of(batch);
    work.scaled = scaled;
    work.exchange = enabled_;
    const BatchRun done = run(std::move(work), training_);
    root_->ties().end_batch(enabled_);
    return shared_loss(done.loss());
  });
}

Tensor Pipeline::State::evaluate(const Batch& batch) {
  const nn::EvaluationMode mode(*root_);
  const torch::NoGradGuard no_grad;
  return or_abort<Tensor>([&] { return shared_loss(run(work_of(batch), evaluation_).loss()); });
}

std::vector<Tensor> Pipeline::State::predict(const Batch& batch) {
  const nn::EvaluationMode mode(*root_);
  const torch::NoGradGuard no_grad;
  return or_abort<std::vector<Tensor>>([&] { return run(work_of(batch), evaluation_).outputs(); });
}

Pipeline::Pipeline(std::vector<PipelineLayer> layers, const Group& group, const PipelineOptions& options)
    : state_(std::make_shared<State>(std::move(layers), group, options)) {}

torch::Tensor Pipeline::train_batch(const BatchTensors& inputs, const BatchTensors& targets,
                                    torch::optim::Optimizer& optimizer, const PipelineStepOptions& options) {
  const State::Batch batch{.kind = State::Kind::train,
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
  const State::Batch batch{.kind = State::Kind::train, .inputs = inputs, .targets = targets, .scaler = options.scaler};
  state_->agree(batch);
  return state_->train(batch, [&](const torch::Tensor& one) {
    const torch::Tensor part = one * options.share;
    return options.scaler ? options.scaler->scale(part) : part;
  });
}

torch::Tensor Pipeline::eval_batch(const BatchTensors& inputs, const BatchTensors& targets) {
  const State::Batch batch{.kind = State::Kind::evaluate, .inputs = inputs, .targets = targets};
  state_->agree(batch);
  return state_->evaluate(batch);
}

std::vector<torch::Tensor> Pipeline::predict(const BatchTensors& inputs) {
  const BatchTensors none;
  const State::Batch batch{.kind = State::Kind::predict, .inputs = inputs, .targets = none};
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
