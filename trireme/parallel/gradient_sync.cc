#include "trireme/parallel/gradient_sync.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/torch.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <numeric>
#include <optional>
#include <sstream>
#include <utility>

#include "trireme/comm/collectives.h"
#include "trireme/comm/members.h"
#include "trireme/core/error.h"
#include "trireme/core/log.h"
#include "trireme/core/text.h"
#include "trireme/parallel/backward_watch.h"
#include "trireme/parallel/bucket_plan.h"
#include "trireme/parallel/bucket_reducer.h"
#include "trireme/parallel/gradient_marks.h"
#include "trireme/parallel/gradient_watch.h"
#include "trireme/parallel/local_gradients.h"
#include "trireme/parallel/model_parameters.h"
#include "trireme/parallel/outside_leaves.h"
#include "trireme/parallel/own_steps.h"
#include "trireme/parallel/parameter_check.h"
#include "trireme/parallel/parameter_schedule.h"
#include "trireme/parallel/roll_call.h"
#include "trireme/parallel/same_model.h"
#include "trireme/parallel/same_settings.h"
#include "trireme/parallel/sync_batch_norm.h"
#include "trireme/parallel/wrapped_module.h"
#include "trireme/watch/recorder.h"

namespace trireme {
namespace {

constexpr size_t kShownNames = 10;
constexpr const char* kWho = "DataParallel";

const DataParallelOptions& checked(const DataParallelOptions& options) {
  if (options.comm_buffer_size < 1 || options.last_comm_buffer_size < 1)
    throw UsageError(
        "DataParallel: comm_buffer_size = {} MB and last_comm_buffer_size = {} MB; both must be at least 1",
        options.comm_buffer_size, options.last_comm_buffer_size);
  if (options.parameter_check_interval < 0)
    throw UsageError("DataParallel: parameter_check_interval = {}; it must be 0 (never) or more",
                     options.parameter_check_interval);
  if (options.powersgd_rank < 1)
    throw UsageError("DataParallel: powersgd_rank = {}; it must be at least 1", options.powersgd_rank);
  return options;
}

}  // namespace

std::string detail::describe(const DataParallelOptions& options) {
  return fmt::format(
      "comm_buffer_size = {} MB, last_comm_buffer_size = {} MB, find_unused_parameters = {}, broadcast_buffers = {}, "
      "static_graph = {}, gradient_compression = {}, powersgd_rank = {}, parameter_check_interval = {}",
      options.comm_buffer_size, options.last_comm_buffer_size, options.find_unused_parameters,
      options.broadcast_buffers, options.static_graph, static_cast<int>(options.gradient_compression),
      options.powersgd_rank, options.parameter_check_interval);
}

class GradientSync::Impl : public std::enable_shared_from_this<Impl>, public parallel::BackwardListener {
 public:
  Impl(std::shared_ptr<torch::nn::Module> module, const Group& group, const DataParallelOptions& options)
      : module_(std::move(module)),
        group_(duplicate(group)),
        options_(options),
        hook_(compressed_gradients(options.gradient_compression, options.powersgd_rank)),
        parameters_(*module_),
        roll_call_(group_) {
    parallel::require_same_settings(kWho, {detail::describe(options)}, group_);
    require_same_model(*module_, group_, kWho);
    if (module_->parameters().empty())
      throw UsageError("DataParallel: the model has no parameters; there is nothing to average");
    broadcast_state(*module_, 0, group_);
    const parallel::Replicas replicas = parallel::replicas_of(*module_);
    beside_others_ = group_.size() > 1 || !replicas.splits.empty();
    const std::string difference = parallel::difference_of_replicas(replicas, group_, kWho);
    if (!difference.empty()) throw UsageError("{}", difference);
  }

  void start() {
    if (beside_others_) watch_gradients();
    wrapped_.emplace(module_, kWho, group_, /*keeps_equal=*/schedule_.compares());
    parallel::listen_to_backwards(shared_from_this());
  }

  const Group& group() const { return group_; }
  void set_enabled(bool enabled) { enabled_ = enabled; }

  void set_hook(GradientHook hook) {
    if (backwards_ > 0)
      throw UsageError("set_gradient_hook: after the first backward; set it right after construction");
    hook_ = std::move(hook);
    own_hook_ = true;
  }

  int bucket_count() const { return plan_ ? static_cast<int>(plan_->buckets.size()) : 0; }
  int gradient_count() const { return plan_ ? static_cast<int>(plan_->in_use.size()) : 0; }

  void join(const std::function<void()>& train, torch::optim::Optimizer* optimizer) {
    if (group_.size() == 1) return train();
    if (options_.static_graph) throw UsageError("join() and static_graph = true do not go together; drop one of them");
    if (has_sync_batch_norm(*module_))
      throw UsageError(
          "join() and SyncBatchNorm do not go together: a rank without data has no part in the statistics");
    joining_ = true;
    try {
      train();
      while (others_go_on()) shadow_backward();
      broadcast_state(*module_, last_active_, group_);  // the ranks of the last backward have made the same step
      if (optimizer) broadcast_state_of(*optimizer);
    } catch (...) {
      joining_ = false;
      group_.abort(fmt::format("{} left join() by an exception", own_place(group_)));
      throw;
    }
    joining_ = false;
    schedule_.joined(backwards_, optimizer != nullptr);
  }

  void before_backward() override {
    const std::lock_guard lock(refresh_mutex_);
    if (!beside_others_ || in_backward_) return;
    if (!parameters_.is_current(*module_)) follow_model();
    averaging_ = false;
    marks_.reset();
    if (group_.size() == 1 || !parallel::is_only_backward()) return;
    has_local_ = false;
    own_steps_.before_backward(schedule_.compares() && !enabled_ && local_.were_stepped(trainable()));
    marks_.emplace(trainable());
  }

  void before_grad(const torch::autograd::edge_list& inputs) override {
    if (!schedule_.compares() || group_.size() == 1 || in_backward_) return;
    std::optional<uint64_t> step;
    {
      const std::lock_guard lock(refresh_mutex_);
      step = own_steps_.before_grad(inputs, trainable());
    }
    if (step) own_steps_.require_equal_by_hand(*step);
  }

  void after_backward() override {
    if (group_.size() == 1 && enabled_) steps_.end_step();
    if (group_.size() == 1 || averaging_ || !parallel::is_only_backward()) return;
    refuse_unseen_gradients([&](size_t i) { return !enabled_ && local_.has(i); });
    local_.end_of_backward(trainable());
    if (has_local_) local_streak_.count(group_);
  }

 private:
  static std::vector<int> all_ranks(const Group& group) {
    std::vector<int> ranks(static_cast<size_t>(group.size()));
    std::iota(ranks.begin(), ranks.end(), 0);
    return ranks;
  }

  const std::vector<parallel::ModelParameter>& trainable() const { return parameters_.trainable(); }

  void follow_model() {
    parallel::ModelParameters now(*module_);
    const bool alike = now.fingerprint() == parameters_.fingerprint();
    last_change_ = now.first_change_since(parameters_);
    parameters_ = std::move(now);
    own_steps_.follow_model();
    if (!alike) forget_plan();
    watch_gradients();
    if (plan_) make_reducer();  // other tensors under the same names: the plan holds for them
  }

  void watch_gradients() {
    watches_.clear();
    seen_.assign(trainable().size(), 0);
    local_.follow(trainable());
    for (size_t i = 0; i < trainable().size(); ++i) {
      auto on_gradient = [weak = weak_from_this(), i] {
        if (const auto self = weak.lock()) self->on_gradient(i);
      };
      watches_.push_back(std::make_unique<parallel::GradientWatch>(trainable()[i].accumulator, std::move(on_gradient)));
    }
  }

  void forget_plan() {
    plan_.reset();
    reducer_.reset();
    if (!own_hook_) hook_ = compressed_gradients(options_.gradient_compression, options_.powersgd_rank);
  }

  // --- one backward, in the order of events

  void on_gradient(size_t index) {
    if (!in_backward_) {
      if (!enabled_) return note_local_gradient(index);
      if (group_.size() == 1)
        begin_backward_alone();
      else
        begin_backward();
    }
    if (group_.size() == 1) return;
    if (trainable()[index].tensor.grad().requires_grad())
      fail(
          "backward(create_graph = true): averaged gradients have no graph; use torch::autograd::grad() for a gradient "
          "that goes into the loss, or no_sync()");
    if (plan_ && plan_->place[index] < 0 && !options_.find_unused_parameters)
      fail_for_new_use({trainable()[index].name});
    if (seen_[index]++ == 0) order_.push_back(static_cast<int64_t>(index));
    if (plan_) refuse_repeated_gradient(index);  // the Reducer would, in its own words
  }

  void note_local_gradient(size_t index) {
    has_local_ = true;
    own_steps_.on_local_gradient(local_);
    local_.note(index, trainable()[index]);
  }

  void begin_backward() {
    if (broken_)
      throw PeerError(
          "{}: an earlier backward() has failed, so the ranks' gradients can no longer be averaged; start "
          "again from a checkpoint, with a new world",
          own_place(group_));
    in_backward_ = true;
    averaging_ = true;
    std::fill(seen_.begin(), seen_.end(), 0);
    order_.clear();
    at_the_end([](Impl& self) { self.end_backward(); });
    call_the_roll();
    ++backwards_;
    outside_.look(static_cast<uint64_t>(backwards_), group_);
    parallel::note_averaged_backward();
    check_parameters();
    if (!plan_) return;
    note_missing_gradients();
    unused_ = options_.find_unused_parameters ? not_in_this_graph() : std::vector<size_t>();
    reducer_->arm(unused_);
  }

  // Nothing is averaged, but layers are split over other ranks.
  void begin_backward_alone() {
    in_backward_ = true;
    at_the_end([](Impl& self) { self.in_backward_ = false; });
    ++backwards_;
    check_parameters();
  }

  // A rank that learns waits for the answer, since it must not learn alone; so do all ranks inside of join(). Otherwise
  // the backward goes on: if the model of another rank has changed, that rank ends it.
  void call_the_roll() {
    const bool changed = schedule_.compares() && local_.weights_have_changed(trainable());
    schedule_.begin_backward(changed);
    bool by_hand = false;
    {
      const std::lock_guard lock(refresh_mutex_);
      by_hand = own_steps_.begin_averaged();
    }
    roll_call_.begin({.active = true, .model = known_model(), .look = changed, .by_hand = by_hand});
    active_ = all_ranks(group_);
    if (!joining_ && plan_) return;
    roll_call_.wait();
    active_ = roll_call_.active();
    refuse_another_model();
  }

  // What must be equal on all ranks for a backward together.
  uint64_t known_model() const { return parameters_.fingerprint() * 2 + (plan_ ? 1 : 0); }

  // The rank whose model has changed says what has changed, and so ends the backward of the others.
  void refuse_another_model() {
    const int other = roll_call_.with_another_model();
    if (other < 0) return;
    if (last_change_.empty()) barrier(group_);
    fail(fmt::format("{} on {} since it was wrapped, but not on {}; change the model in the same way on every rank",
                     last_change_, own_place(group_), place_of(group_, other)));
  }

  void check_parameters() {
    schedule_.check({.number = backwards_, .learns = !plan_, .all_are_active = all_are_active()});
  }

  // Ranks that have run out of data inside of join() do not step.
  bool all_are_active() const { return group_.size() == 1 || active_.size() == static_cast<size_t>(group_.size()); }

  // An exception may end the backward instead: some ranks may have averaged what others have not, and some wait for what
  // this one will never give.
  void at_the_end(const std::function<void(Impl&)>& end) {
    parallel::at_end_of_backward([self = shared_from_this(), end] { end(*self); },
                                 [weak = weak_from_this()] {
                                   if (const auto self = weak.lock(); self && self->in_backward_) self->give_up();
                                 });
  }

  void give_up() noexcept {
    in_backward_ = false;
    broken_ = true;
    try {
      group_.abort(fmt::format("an exception has ended the backward() of {}", own_place(group_)));
    } catch (const std::exception& error) {
      log_warning("{}: cannot tell the others that backward() has failed: {}", own_place(group_), error.what());
    }
  }

  // Callbacks of the engine run in the order in which they were queued. Ours was queued first; the Reducer's, which
  // waits for the buckets, later, by the last gradient. So the rest of our end is queued behind it.
  void end_backward() {
    const torch::NoGradGuard no_grad;
    refuse_unseen_gradients([&](size_t i) { return seen_[i] > 0; });
    if (!plan_) {
      learn({order_, used_here()});
      finish_backward();
      return;
    }
    complete_buckets();
    at_the_end([](Impl& self) {
      const torch::NoGradGuard quiet;
      self.roll_call_.wait();
      self.refuse_another_model();
      if (self.options_.find_unused_parameters) self.forget_gradients_of_unused();
      self.finish_backward();
    });
  }

  // The graph of a forward that ran before its parameter was changed calls no hook, so its gradient would not be
  // averaged. Called before averages are written, which are changes too.
  void refuse_unseen_gradients(const std::function<bool(size_t)>& is_seen) {
    const std::lock_guard lock(refresh_mutex_);
    for (size_t i = 0; marks_ && i < trainable().size(); ++i)
      if (!is_seen(i) && marks_->has_changed(i, trainable()[i]))
        fail(
            fmt::format("parameter {} was changed between forward and backward (Module::to(), set_data()), so its "
                        "gradient cannot be averaged; change the model before forward, or after backward",
                        trainable()[i].name));
  }

  // What no gradient has filled: local gradients of an earlier backward. With find_unused_parameters also what was in
  // the graph but has got no gradient; the rest the reducer was told when it was armed.
  void complete_buckets() {
    refuse_newly_used_local_gradients();
    if (options_.static_graph && !reducer_graph_known_) {
      reducer_graph_known_ = true;
      static_graph_ = seen_;
      reducer_->reduce_late();
      return;
    }
    if (options_.static_graph) refuse_another_graph();
    std::vector<std::string> missing;
    std::vector<size_t> ready;
    for (size_t place = 0; place < plan_->in_use.size(); ++place) {
      const size_t index = plan_->in_use[place];
      if (seen_[index] > 0 || std::binary_search(unused_.begin(), unused_.end(), place)) continue;
      if (options_.find_unused_parameters || local_.has(index))
        ready.push_back(place);
      else
        missing.push_back(trainable()[index].name);
    }
    if (!missing.empty())
      fail(
          fmt::format("no gradient in this backward for {}, which had one in the first; if the model uses other "
                      "parameters from step to step, set find_unused_parameters = true",
                      join_some(missing, kShownNames)));
    for (const size_t place : ready) reducer_->mark_ready(place);
  }

  // The reducer waits for as many gradients as in the first backward that it has seen.
  void refuse_another_graph() {
    for (size_t i = 0; i < seen_.size(); ++i)
      if (seen_[i] > 0 && seen_[i] < static_graph_[i])
        fail(
            fmt::format("parameter {} got {} gradients in this backward and {} in the first; with static_graph = true "
                        "every backward must run the same graph: drop that option",
                        trainable()[i].name, seen_[i], static_graph_[i]));
  }

  void refuse_newly_used_local_gradients() {
    std::vector<std::string> names;
    for (size_t i = 0; i < trainable().size(); ++i)
      if (local_.has(i) && plan_->place[i] < 0) names.push_back(trainable()[i].name);
    if (!names.empty()) fail_for_new_use(names);
  }

  void finish_backward() {
    if (options_.broadcast_buffers && !module_->buffers().empty())
      broadcast_tensors(module_->buffers(), active_.front(), group_);
    last_active_ = active_.front();
    schedule_.check_changed({.number = backwards_, .all_are_active = all_are_active()},
                            {.after_local = roll_call_.look(), .by_hand = roll_call_.by_hand()});
    local_.clear();
    local_streak_.end();
    last_change_.clear();
    in_backward_ = false;
    steps_.end_step();
  }

  [[noreturn]] void fail_for_new_use(const std::vector<std::string>& names) {
    fail(
        fmt::format("parameter {} gets a gradient now but got none in the first backward; if the model uses other "
                    "parameters from step to step, set find_unused_parameters = true",
                    join_some(names, kShownNames)));
  }

  [[noreturn]] void fail(const std::string& reason) {
    group_.abort(reason);
    throw UsageError("{}: {}", own_place(group_), reason);
  }

  // --- learning

  std::vector<uint8_t> used_here() const {
    std::vector<uint8_t> used;
    for (size_t i = 0; i < seen_.size(); ++i) used.push_back(seen_[i] > 0 || local_.has(i));
    return used;
  }

  // Called by every rank at the same place, with what it has seen.
  void learn(const parallel::SeenGradients& mine) {
    refuse_sparse_gradients();
    for (size_t i = 0; i < trainable().size(); ++i) refuse_repeated_gradient(i);
    parallel::BucketPlan plan =
        parallel::agree_on_buckets(mine, trainable(), {.root = active_.front(), .group = group_, .options = options_});
    parallel::average_now(plan, trainable(), hook_, group_);
    plan_ = std::move(plan);
    make_reducer();
    log_buckets();
  }

  void refuse_sparse_gradients() {
    for (const parallel::ModelParameter& parameter : trainable())
      if (parameter.tensor.grad().defined() && parameter.tensor.grad().is_sparse())
        fail(
            fmt::format("parameter {} has a sparse gradient; DataParallel averages dense ones: make the embedding with "
                        "sparse(false)",
                        parameter.name));
  }

  void refuse_repeated_gradient(size_t index) {
    if (seen_[index] > 1 && !options_.static_graph)
      fail(
          fmt::format("parameter {} got its gradient {} times in one backward (a backward inside of a backward?); set "
                      "static_graph = true",
                      trainable()[index].name, seen_[index]));
  }

  void make_reducer() {
    reducer_ = std::make_unique<parallel::BucketReducer>(plan_->tensors(trainable()), plan_->names(trainable()),
                                                         plan_->buckets, group_, hook_, options_);
    reducer_graph_known_ = false;
  }

  void log_buckets() const {
    if (group_.rank() != 0) return;
    int64_t bytes = 0;
    for (const torch::Tensor& tensor : plan_->tensors(trainable())) bytes += static_cast<int64_t>(tensor.nbytes());
    log_info("data parallel: {} gradient tensors ({:.1f} MB) fused into {} bucket{}, averaged over {} ranks by {}",
             gradient_count(), static_cast<double>(bytes) / 1e6, bucket_count(), bucket_count() == 1 ? "" : "s",
             group_.size(), trainable()[0].tensor.is_cuda() ? group_.cuda_backend() : group_.backend());
  }

  // --- unused parameters

  // The places of parameters that this backward will not reach. The engine knows its graph, and with
  // backward(inputs = …) which part of it runs; asked by the first gradient.
  std::vector<size_t> not_in_this_graph() const {
    const auto* nodes = torch::autograd::get_current_graph_task_nodes_in_graph();
    const auto* runs = torch::autograd::get_current_graph_task_exec_info();  // empty: all of it
    std::vector<size_t> places;
    for (size_t place = 0; place < plan_->in_use.size(); ++place) {
      auto* const node = trainable()[plan_->in_use[place]].accumulator.get();
      const auto found = runs->find(node);
      const bool will_run = runs->empty() || (found != runs->end() && found->second.should_execute());
      if (!nodes->contains(node) || !will_run) places.push_back(place);
    }
    return places;
  }

  // The Reducer gives an average of zeros to a parameter that no rank has used. An optimizer would take that for a
  // gradient (momentum, weight decay), so it goes again.
  void forget_gradients_of_unused() {
    const std::vector<uint8_t> used = parallel::used_by_any(used_here(), group_);
    for (size_t i = 0; i < trainable().size(); ++i)
      if (used[i] == 0 && had_no_gradient_[i]) trainable()[i].tensor.mutable_grad().reset();
  }

  void note_missing_gradients() {
    had_no_gradient_.clear();
    for (size_t i = 0; i < trainable().size(); ++i)
      had_no_gradient_.push_back(seen_[i] == 0 && !trainable()[i].tensor.grad().defined());
  }

  // --- ranks that have run out of data

  // The state of the optimizer, options included, is then that of a rank that has made all steps.
  void broadcast_state_of(torch::optim::Optimizer& optimizer) {
    std::ostringstream mine;
    if (group_.rank() == last_active_) torch::save(optimizer, mine);
    std::istringstream theirs(broadcast_object(mine.str(), last_active_, group_));
    if (group_.rank() != last_active_) torch::load(optimizer, theirs, module_->parameters()[0].device());
  }

  // Called between backwards, by a rank that has left `train`: whether others have begun one.
  bool others_go_on() {
    roll_call_.begin({.active = false, .model = known_model()});
    roll_call_.wait();
    active_ = roll_call_.active();
    return !active_.empty();
  }

  void drop_gradients() {
    for (const parallel::ModelParameter& parameter : trainable()) parameter.tensor.mutable_grad().reset();
  }

  // The collectives of one backward of the others, with nothing to give.
  void shadow_backward() {
    const torch::NoGradGuard no_grad;
    refuse_another_model();
    ++backwards_;
    {
      const std::lock_guard lock(refresh_mutex_);
      own_steps_.note_averaged();
    }
    std::fill(seen_.begin(), seen_.end(), 0);
    if (!plan_) {
      drop_gradients();
      learn({{}, used_here()});
      drop_gradients();  // of the others' step; the next backward here would add to them
    } else {
      reducer_->reduce_zeros();
      note_missing_gradients();
      if (options_.find_unused_parameters) forget_gradients_of_unused();
    }
    finish_backward();
  }

  const std::shared_ptr<torch::nn::Module> module_;
  const Group group_;
  const DataParallelOptions options_;
  GradientHook hook_;
  bool own_hook_ = false;  // hook_ is the user's
  std::atomic<bool> enabled_ = true;
  bool joining_ = false;
  bool beside_others_ = false;  // there are ranks whose gradients are averaged with these, or that split its layers

  std::mutex refresh_mutex_;  // two threads may begin backwards of two models
  parallel::ModelParameters parameters_;
  std::vector<std::unique_ptr<parallel::GradientWatch>> watches_;  // one for each trainable parameter
  std::string last_change_;                                        // of the model, until a backward has ended
  std::optional<parallel::GradientMarks> marks_;                   // when it began; none: others run beside it

  parallel::RollCall roll_call_;
  std::atomic<bool> in_backward_ = false;
  std::atomic<bool> averaging_ = false;  // the backward under way, or the last one, averages
  bool broken_ = false;                  // a backward has not come to its end
  int64_t backwards_ = 0;                // averaged ones
  std::vector<int> seen_;                // how often each parameter has got its gradient in this backward
  parallel::LocalGradients local_;
  parallel::LocalStreak local_streak_;
  bool has_local_ = false;  // this backward gave local gradients
  parallel::OwnSteps own_steps_{*module_, group_};
  parallel::ParameterSchedule schedule_{*module_, group_, options_.parameter_check_interval};
  parallel::OutsideLeaves outside_;
  std::vector<int64_t> order_;         // in which the gradients have come
  std::vector<size_t> unused_;         // places that the reducer was told to do without
  std::vector<int> active_;            // the ranks that take part
  int last_active_ = 0;                // the first of those that took part in the last backward
  std::vector<bool> had_no_gradient_;  // when this backward began

  std::optional<parallel::BucketPlan> plan_;  // none: the next backward learns
  std::unique_ptr<parallel::BucketReducer> reducer_;
  bool reducer_graph_known_ = false;
  std::vector<int> static_graph_;  // seen_ of the backward in which it became known
  watch::StepCounter steps_{watch::StepCounter::Source::backwards};
  std::optional<parallel::WrappedModule> wrapped_;
};

GradientSync::GradientSync(std::shared_ptr<torch::nn::Module> module, const Group& group,
                           const DataParallelOptions& options) {
  // Checked first: a rank that throws must not leave a group that others are still connecting.
  require_no_split_over(*module, group, kWho);
  impl_ = std::make_shared<Impl>(std::move(module), group, checked(options));
  impl_->start();
}
GradientSync::~GradientSync() = default;

const Group& GradientSync::group() const {
  return impl_->group();
}
void GradientSync::set_enabled(bool enabled) {
  impl_->set_enabled(enabled);
}
void GradientSync::set_hook(GradientHook hook) {
  impl_->set_hook(std::move(hook));
}
void GradientSync::join(const std::function<void()>& train, torch::optim::Optimizer* optimizer) {
  impl_->join(train, optimizer);
}
int GradientSync::bucket_count() const {
  return impl_->bucket_count();
}
int GradientSync::gradient_count() const {
  return impl_->gradient_count();
}

}  // namespace trireme
