#include "trireme/parallel/sharded/shard_sync.h"

#include <ATen/record_function.h>
#include <torch/torch.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <exception>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>

#include "trireme/comm/collectives.h"
#include "trireme/comm/members.h"
#include "trireme/core/error.h"
#include "trireme/core/log.h"
#include "trireme/optim/tensors.h"
#include "trireme/parallel/backward_watch.h"
#include "trireme/parallel/local_gradients.h"
#include "trireme/parallel/model_parameters.h"
#include "trireme/parallel/outside_leaves.h"
#include "trireme/parallel/parameter_check.h"
#include "trireme/parallel/same_model.h"
#include "trireme/parallel/same_settings.h"
#include "trireme/parallel/sharded/shard_failure.h"
#include "trireme/parallel/sharded/shard_unit.h"
#include "trireme/parallel/sharded/split_pieces.h"
#include "trireme/parallel/sharded/unit_gradients.h"
#include "trireme/parallel/sharded/unit_members.h"
#include "trireme/parallel/sharded/unit_values.h"
#include "trireme/parallel/sharded/use_watch.h"
#include "trireme/parallel/wrapped_module.h"
#include "trireme/watch/recorder.h"

namespace trireme {
namespace {

using parallel::MemoryUse;
using parallel::ShardUnit;
using parallel::UnitMember;
using parallel::UnitPlace;

constexpr const char* kWho = "ShardedDataParallel";
constexpr uint64_t kFiniteInterval = 200;  // as DataParallelOptions::parameter_check_interval

const ShardedOptions& checked(const ShardedOptions& options) {
  if (options.unit_size < 1)
    throw UsageError("ShardedDataParallel: unit_size = {} MB; it must be at least 1", options.unit_size);
  if (options.param_dtype && !optim::is_low_precision(*options.param_dtype))
    throw UsageError("ShardedDataParallel: param_dtype is {}; it must be BFloat16 or Half, or not be set",
                     c10::toString(*options.param_dtype));
  if (options.reduce_dtype && !c10::isFloatingType(*options.reduce_dtype))
    throw UsageError(
        "ShardedDataParallel: reduce_dtype is {}; gradients are averaged in Float, Double, BFloat16 or Half",
        c10::toString(*options.reduce_dtype));
  return options;
}

bool keeps_parameters(const ShardedOptions& options) {
  return options.shard != Shard::parameters;
}

std::vector<ShardUnit> make_units(const std::vector<UnitMember>& members, const std::vector<torch::Tensor>& alone,
                                  const ShardedOptions& options, const parallel::UnitGroups& groups) {
  std::vector<ShardUnit> units;
  const int64_t bytes = int64_t{options.unit_size} << 20;
  for (parallel::UnitPlan& plan :
       parallel::plan_units(parallel::planned(members, alone), bytes, groups.gather.size())) {
    std::vector<UnitMember> of_unit;
    for (const size_t member : plan.members) of_unit.push_back(members[member]);
    const parallel::UnitMemory memory{.keep_parameters = keeps_parameters(options),
                                      .keep_gradients = options.shard == Shard::optimizer,
                                      .reduce_type = options.reduce_dtype,
                                      .offload = options.offload};
    units.emplace_back(std::move(plan), std::move(of_unit), memory, groups);
  }
  return units;
}

// This rank's piece of each parameter, in the order of the model, though units are by kind.
torch::OrderedDict<std::string, torch::Tensor> pieces_of(const torch::nn::Module& module,
                                                         const std::vector<ShardUnit>& units) {
  std::unordered_map<const void*, torch::Tensor> piece_of;
  for (const ShardUnit& unit : units)
    for (size_t i = 0; i < unit.members().size(); ++i)
      piece_of[unit.members()[i].parameter.unsafeGetTensorImpl()] = unit.pieces()[i];
  torch::OrderedDict<std::string, torch::Tensor> pieces;
  for (const UnitMember& member : parallel::members_of(module))
    pieces.insert(member.name, piece_of.at(member.parameter.unsafeGetTensorImpl()));
  return pieces;
}

// The pieces of what is whole beside layers that are split over other ranks: those have the same.
parallel::Replicas replicas_of(const torch::nn::Module& module,
                               const torch::OrderedDict<std::string, torch::Tensor>& pieces) {
  parallel::Replicas replicas = parallel::replicas_of(module);
  torch::OrderedDict<std::string, torch::Tensor> of_pieces;
  for (const auto& item : pieces)
    if (replicas.tensors.contains(item.key())) of_pieces.insert(item.key(), item.value());
  replicas.tensors = std::move(of_pieces);
  return replicas;
}

// The model as all ranks begin with it.
torch::nn::Module& agreed(torch::nn::Module& module, const ShardedOptions& options, const Group& group) {
  require_no_split_over(module, group, kWho);
  parallel::require_same_settings(kWho, {detail::describe(options)}, group);
  require_same_model(module, group, kWho);
  parallel::require_own_memory(module);
  broadcast_state(module, 0, group);
  return module;
}

}  // namespace

std::string detail::describe(const ShardedOptions& options) {
  const auto type = [](const std::optional<c10::ScalarType>& dtype) { return dtype ? c10::toString(*dtype) : "none"; };
  return fmt::format(
      "shard = {}, unit_size = {} MB, param_dtype = {}, reduce_dtype = {}, offload = {}, broadcast_buffers = {}",
      static_cast<int>(options.shard) + 1, options.unit_size, type(options.param_dtype), type(options.reduce_dtype),
      options.offload, options.broadcast_buffers);
}

// All but the constructor holds mutex_.
class ShardSync::Impl final : public std::enable_shared_from_this<Impl>,
                              public parallel::BackwardListener,
                              public parallel::UseListener {
 public:
  Impl(std::shared_ptr<torch::nn::Module> module, const Group& group, const ShardedOptions& options,
       const std::vector<torch::Tensor>& alone)
      : module_(std::move(module)),
        options_(checked(options)),
        groups_{duplicate(group), duplicate(group)},
        units_(make_units(parallel::members_of(agreed(*module_, options_, groups_.reduce), options_.param_dtype), alone,
                          options_, groups_)),
        pieces_(pieces_of(*module_, units_)),
        replicas_(replicas_of(*module_, pieces_)),
        known_(*module_),
        failure_(groups_),
        values_(units_, groups_, keeps_parameters(options_)),
        gradients_(units_, groups_, keeps_parameters(options_), failure_) {
    const std::string difference = parallel::difference_of_replicas(replicas_, groups_.reduce, kWho);
    if (!difference.empty()) throw UsageError("{}", difference);
    log_units();
  }

  void start() {
    watch_gradients();
    wrapped_.emplace(module_, kWho, groups_.reduce, /*keeps_equal=*/false);
    parallel::listen_to_backwards(shared_from_this());
    parallel::listen_to_uses(shared_from_this(), watched_memory());
    const auto settle = [weak = weak_from_this()] {
      const auto self = weak.lock();
      return self && self->settle();
    };
    const auto put = [weak = weak_from_this()](const torch::Tensor& piece, const torch::Tensor& values) {
      if (const auto self = weak.lock()) self->put(piece, values);
    };
    split_.emplace(units_, groups_.reduce, parallel::SplitPieces::Model{settle, put});
  }
  ~Impl() override {
    parallel::forget_uses(this);
    try {
      for (ShardUnit& unit : units_) unit.abandon();
    } catch (const std::exception& error) {  // of a GPU that has failed, or has no memory left
      log_warning("{}: the weights that were not gathered keep old values: {}", kWho, error.what());
    }
  }

  const Group& group() const { return groups_.reduce; }
  const torch::OrderedDict<std::string, torch::Tensor>& pieces() const { return pieces_; }
  int unit_count() const { return static_cast<int>(units_.size()); }
  void set_enabled(bool enabled) { enabled_ = enabled; }

  void hold() {
    const std::lock_guard lock(mutex_);
    failure_.rethrow();
    values_.hold();
  }
  void let_go() noexcept {
    const std::lock_guard lock(mutex_);
    try {
      values_.let_go();
    } catch (const std::exception& error) {
      failure_.later(std::current_exception(), error.what());
    }
  }

  bool settle() {
    const std::lock_guard lock(mutex_);
    failure_.rethrow();
    return values_.settle();
  }

  void put(const torch::Tensor& piece, const torch::Tensor& values) {
    const std::lock_guard lock(mutex_);
    failure_.rethrow();
    values_.note_new_values();
    const torch::NoGradGuard no_grad;
    const at::DisableRecordFunctionGuard unobserved;  // no step
    piece.copy_(values);
  }

  void rethrow_failure() {
    const std::lock_guard lock(mutex_);
    failure_.rethrow();
  }

  void abort(const std::string& reason) { failure_.abort(reason); }

  // --- uses of the model's memory

  void before_use(const MemoryUse& use) noexcept override {
    const std::lock_guard lock(mutex_);
    const bool of_values = use.place < kShards;
    if (of_values) values_.enter(use.place);
    try {
      if (use.place >= kGradients)
        check_gradient_use(use);
      else if (!of_values && use.writes)
        values_.note_write(use.operation);
      else if (of_values && !failure_.happened())
        values_.use(use.place, use.writes);
    } catch (const std::exception& error) {
      failure_.later(std::current_exception(), error.what());
    }
    if (of_values && failure_.happened()) values_.fill_with_nan(use.place);
  }
  void after_use(const MemoryUse& use) noexcept override {
    const std::lock_guard lock(mutex_);
    if (use.place < kShards) values_.leave(use.place, use.writes);
  }

  // --- backward

  void before_backward() override {
    const std::lock_guard lock(mutex_);
    is_local_ = false;
    failure_.rethrow();
    if (gradients_.in_backward() || (is_intact() && known_.is_current(*module_))) return;
    parallel::ModelParameters now(*module_);
    const std::string change =
        is_intact() ? now.first_change_since(known_) : fmt::format("parameter {} has got other memory", first_moved());
    const std::vector<UnitMember> members = parallel::members_of(*module_);
    if (members.size() != pieces_.size() ||
        !std::all_of(members.begin(), members.end(), [&](const auto& member) { return is_ours(member.parameter); }))
      refuse_change(change);
    known_ = std::move(now);  // requires_grad has changed
    watch_gradients();
  }
  void backward_failed() override { rethrow_failure(); }

 private:
  static constexpr size_t kShards = size_t{1} << 40;     // places of shards: a write to one makes gathered values old
  static constexpr size_t kGradients = size_t{1} << 41;  // places of averaged gradients

  std::vector<parallel::WatchedMemory> watched_memory() const {
    std::vector<parallel::WatchedMemory> memory;
    for (size_t i = 0; i < units_.size(); ++i) {
      memory.push_back({units_[i].gradient_storage(), kGradients + i});
      memory.push_back({units_[i].shard_storage(), kShards + i});
      memory.push_back({units_[i].full_storage(), i});
    }
    return memory;
  }

  void log_units() const {
    if (groups_.gather.rank() != 0) return;
    int64_t bytes = 0;
    for (const ShardUnit& unit : units_) bytes += unit.full_bytes();
    log_info("sharded: {} parameters ({:.1f} MB) in {} unit{}, split over {} ranks", pieces_.size(),
             static_cast<double>(bytes) / 1e6, units_.size(), units_.size() == 1 ? "" : "s", groups_.gather.size());
  }

  // --- changes behind our back

  // The name of a parameter whose memory is not its unit's any more, or nothing.
  std::string first_moved() const {
    for (const ShardUnit& unit : units_)
      for (size_t i = 0; i < unit.members().size(); ++i)
        if (!unit.is_intact(i)) return unit.members()[i].name;
    return "";
  }
  bool is_intact() const { return first_moved().empty(); }

  bool is_ours(const torch::Tensor& parameter) const {
    for (const ShardUnit& unit : units_)
      for (size_t i = 0; i < unit.members().size(); ++i)
        if (unit.members()[i].parameter.is_same(parameter)) return unit.is_intact(i);
    return false;
  }

  [[noreturn]] void refuse_change(const std::string& change) {
    failure_.fail(fmt::format(
        "{} since the model was wrapped by ShardedDataParallel; load weights, convert and add layers before "
        "that, or write into the parameters while `auto whole = model.gathered()` lives",
        change));
  }

  // A norm over this rank's part is not the norm; libtorch's clip_grad_norm_ would scale every rank in its own way.
  void check_gradient_use(const MemoryUse& use) {
    const std::string_view name = use.operation;
    if (name.find("norm") == std::string_view::npos) return;
    throw UsageError(
        "{}: {} of gradients that are split over the ranks sees only this rank's part; use "
        "optim::clip_grad_norm() or optim::grad_norm(), which know",
        own_place(groups_.reduce), name);
  }

  // --- gradients

  void watch_gradients() {
    gradients_.watch([weak = weak_from_this()](UnitPlace place) {
      if (const auto self = weak.lock()) self->on_gradient(place);
    });
  }

  void on_gradient(const UnitPlace& place) {
    const std::lock_guard lock(mutex_);
    if (!gradients_.in_backward()) {
      if (!enabled_) return count_local_backward();
      local_streak_.end();
      gradients_.begin_backward(values_.written(), known_.fingerprint());
      parallel::at_end_of_backward([self = shared_from_this()] { self->end_backward(); },
                                   [weak = weak_from_this()] {
                                     if (const auto self = weak.lock()) self->gradients_.give_up();
                                   });
      ++backwards_;
      outside_.look(backwards_, groups_.reduce);
      if (groups_.reduce.size() > 1) parallel::note_averaged_backward();
      if (std::has_single_bit(backwards_)) check_replicas();
      if (backwards_ % kFiniteInterval == 0) require_finite();
    }
    gradients_.take(place);
  }

  void count_local_backward() {
    if (!std::exchange(is_local_, true)) local_streak_.count(groups_.reduce);
  }

  // At the 1st, 2nd, 4th, 8th backward and so on. Reading the pieces is no use of the model.
  void check_replicas() {
    const at::DisableRecordFunctionGuard unobserved;
    const std::string when = fmt::format("backward() number {}", backwards_);
    const std::string difference = parallel::difference_of_replicas(replicas_, groups_.reduce, when);
    if (difference.empty()) return;
    if (parallel::must_stay_equal(replicas_)) failure_.fail(difference);
    log_warning("{}", difference);
  }

  void require_finite() {
    const at::DisableRecordFunctionGuard unobserved;
    parallel::require_finite(pieces_, groups_.reduce, fmt::format("backward() number {}", backwards_));
  }

  void end_backward() {
    const std::lock_guard lock(mutex_);
    failure_.rethrow();
    gradients_.end_backward();
    if (options_.broadcast_buffers && !module_->buffers().empty())
      broadcast_tensors(module_->buffers(), 0, groups_.reduce);
    values_.end_of_step();
    steps_.end_step();
  }

  const std::shared_ptr<torch::nn::Module> module_;
  const ShardedOptions options_;
  const parallel::UnitGroups groups_;
  std::atomic<bool> enabled_ = true;

  std::recursive_mutex mutex_;  // operators run inside of operators, and backward's hooks inside of those
  std::vector<ShardUnit> units_;
  torch::OrderedDict<std::string, torch::Tensor> pieces_;
  const parallel::Replicas replicas_;  // of the pieces
  uint64_t backwards_ = 0;             // that were averaged
  parallel::ModelParameters known_;
  parallel::ShardFailure failure_;
  parallel::UnitValues values_;
  parallel::UnitGradients gradients_;
  std::optional<parallel::SplitPieces> split_;
  bool is_local_ = false;  // the backward under way runs under no_sync
  parallel::LocalStreak local_streak_;
  parallel::OutsideLeaves outside_;
  watch::StepCounter steps_{watch::StepCounter::Source::backwards};
  std::optional<parallel::WrappedModule> wrapped_;
};

ShardSync::ShardSync(std::shared_ptr<torch::nn::Module> module, const Group& group, const ShardedOptions& options,
                     const std::vector<torch::Tensor>& alone)
    : impl_(std::make_shared<Impl>(std::move(module), group, options, alone)) {
  impl_->start();
}
ShardSync::~ShardSync() = default;

const Group& ShardSync::group() const {
  return impl_->group();
}
void ShardSync::set_enabled(bool enabled) {
  impl_->set_enabled(enabled);
}
const torch::OrderedDict<std::string, torch::Tensor>& ShardSync::pieces() const {
  return impl_->pieces();
}
void ShardSync::hold() {
  impl_->hold();
}
void ShardSync::let_go() {
  impl_->let_go();
}
void ShardSync::rethrow_failure() {
  impl_->rethrow_failure();
}
void ShardSync::abort(const std::string& reason) {
  impl_->abort(reason);
}
int ShardSync::unit_count() const {
  return impl_->unit_count();
}

}  // namespace trireme
