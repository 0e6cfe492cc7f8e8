#include "trireme/parallel/sharded/shard_sync.h"

#include <torch/torch.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <numeric>
#include <optional>
#include <unordered_map>

#include "trireme/comm/collectives.h"
#include "trireme/core/error.h"
#include "trireme/core/log.h"
#include "trireme/optim/tensors.h"
#include "trireme/parallel/backward_watch.h"
#include "trireme/parallel/model_parameters.h"
#include "trireme/parallel/same_model.h"
#include "trireme/parallel/same_settings.h"
#include "trireme/parallel/sharded/shard_failure.h"
#include "trireme/parallel/sharded/shard_unit.h"
#include "trireme/parallel/sharded/split_pieces.h"
#include "trireme/parallel/sharded/unit_gradients.h"
#include "trireme/parallel/sharded/unit_members.h"
#include "trireme/parallel/sharded/unit_values.h"
#include "trireme/parallel/sharded/use_watch.h"

namespace trireme {
namespace {

using parallel::MemoryUse;
using parallel::ShardUnit;
using parallel::UnitMember;
using parallel::UnitPlace;

constexpr const char* kWho = "ShardedDataParallel";

std::vector<int> everyone(const Group& group) {
  std::vector<int> ranks(static_cast<size_t>(group.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

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
        groups_{group.new_group(everyone(group)), group.new_group(everyone(group))},
        units_(make_units(parallel::members_of(agreed(*module_, options_, groups_.reduce), options_.param_dtype), alone,
                          options_, groups_)),
        pieces_(pieces_of(*module_, units_)),
        known_(*module_),
        failure_(groups_),
        values_(units_, groups_, keeps_parameters(options_)),
        gradients_(units_, groups_.reduce, failure_) {
    log_units();
  }

  void start() {
    watch_gradients();
    parallel::listen_to_backwards(shared_from_this());
    parallel::listen_to_uses(shared_from_this(), watched_memory());
    split_.emplace(units_, groups_.reduce, [weak = weak_from_this()]() -> std::shared_ptr<void> {
      const auto self = weak.lock();
      if (!self) return nullptr;
      self->hold();
      return {nullptr, [self](void*) { self->let_go(); }};
    });
  }
  ~Impl() override { parallel::forget_uses(this); }

  const Group& group() const { return groups_.reduce; }
  const torch::OrderedDict<std::string, torch::Tensor>& pieces() const { return pieces_; }
  int unit_count() const { return static_cast<int>(units_.size()); }
  void set_enabled(bool enabled) { enabled_ = enabled; }
  bool enabled() const { return enabled_; }

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
    if (use.place < kShards) values_.leave(use.place);
  }

  // --- backward

  void before_backward() override {
    const std::lock_guard lock(mutex_);
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

  // Kept parameters share their memory with the shards, so there the parameters are known by their tensors: forward
  // always begins with one of those.
  std::vector<parallel::WatchedMemory> watched_memory() const {
    std::vector<parallel::WatchedMemory> memory;
    for (size_t i = 0; i < units_.size(); ++i) {
      memory.push_back({units_[i].gradient_storage(), kGradients + i});
      memory.push_back({units_[i].shard_storage(), kShards + i});
      if (!keeps_parameters(options_)) memory.push_back({units_[i].full_storage(), i});
      if (!keeps_parameters(options_)) continue;
      for (const UnitMember& member : units_[i].members())
        memory.push_back({member.parameter.unsafeGetTensorImpl(), i});
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
        "rank {}: {} of gradients that are split over the ranks sees only this rank's part; use "
        "optim::clip_grad_norm() "
        "or optim::grad_norm(), which know",
        groups_.reduce.rank(), name);
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
      if (!enabled_) return;
      gradients_.begin_backward(values_.written(), known_.fingerprint());
      parallel::at_end_of_backward([self = shared_from_this()] { self->end_backward(); },
                                   [weak = weak_from_this()] {
                                     if (const auto self = weak.lock()) self->gradients_.give_up();
                                   });
    }
    gradients_.take(place);
  }

  void end_backward() {
    const std::lock_guard lock(mutex_);
    failure_.rethrow();
    gradients_.end_backward();
    if (options_.broadcast_buffers && !module_->buffers().empty())
      broadcast_tensors(module_->buffers(), 0, groups_.reduce);
    values_.end_of_step();
  }

  const std::shared_ptr<torch::nn::Module> module_;
  const ShardedOptions options_;
  const parallel::UnitGroups groups_;
  std::atomic<bool> enabled_ = true;

  std::recursive_mutex mutex_;  // operators run inside of operators, and backward's hooks inside of those
  std::vector<ShardUnit> units_;
  torch::OrderedDict<std::string, torch::Tensor> pieces_;
  parallel::ModelParameters known_;
  parallel::ShardFailure failure_;
  parallel::UnitValues values_;
  parallel::UnitGradients gradients_;
  std::optional<parallel::SplitPieces> split_;
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
bool ShardSync::enabled() const {
  return impl_->enabled();
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
