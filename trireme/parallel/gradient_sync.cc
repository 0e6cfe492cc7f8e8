#include "trireme/parallel/gradient_sync.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/torch.h>

#include <algorithm>
#include <mutex>
#include <numeric>
#include <optional>
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>
#include <unordered_set>

#include "trireme/comm/collectives.h"
#include "trireme/comm/group_state.h"
#include "trireme/core/error.h"
#include "trireme/core/log.h"
#include "trireme/core/text.h"
#include "trireme/parallel/recompute.h"
#include "trireme/parallel/same_model.h"
#include "trireme/parallel/sync_batch_norm.h"

namespace trireme {
namespace {

using torch::autograd::Node;

constexpr size_t kMega = size_t{1} << 20;

// Tells the Reducer about a backward in the middle of it, which its public face does not foresee.
class ArmedReducer final : public c10d::Reducer {
 public:
  template <typename... Args>
  explicit ArmedReducer(Args&&... args) : Reducer(std::forward<Args>(args)...) {
    has_rebuilt_bucket_ = true;  // the buckets come in the order of the gradients already
  }

  /// `unused` will get no gradient in this backward and count as zeros.
  void arm(std::vector<size_t> unused) {
    prepare_for_forward();
    prepare_for_backward({});
    unused_parameters_ = std::move(unused);
  }
};

// Our hooks as the Reducer wants them. It waits for a future and then asks for the result; our Work is waited for when
// it asks, on the thread that needs the result.
class HookBridge final : public c10d::CommHookInterface {
 public:
  HookBridge(GradientHook hook, Group group) : hook_(std::move(hook)), group_(std::move(group)) {}

  c10::intrusive_ptr<c10::ivalue::Future> runHook(c10d::GradBucket& bucket) override {
    const torch::NoGradGuard no_grad;
    const size_t index = bucket.getIndex();
    if (under_way_.size() <= index) under_way_.resize(index + 1);
    under_way_[index].flat = bucket.getBuffer();
    under_way_[index].work = hook_({static_cast<int>(index), bucket.getBuffer(), bucket.getGradients()}, group_);
    auto future = c10::make_intrusive<c10::ivalue::Future>(c10::IntType::get());
    future->markCompleted(static_cast<int64_t>(index));
    return future;
  }

  torch::Tensor parseHookResult(const c10::IValue& index) override {
    const torch::NoGradGuard no_grad;
    UnderWay& bucket = under_way_[static_cast<size_t>(index.toInt())];
    bucket.work.wait();
    return bucket.flat;
  }

 private:
  struct UnderWay {
    torch::Tensor flat;
    Work work;
  };
  GradientHook hook_;
  Group group_;
  std::vector<UnderWay> under_way_;
};

GradientHook hook_of(const DataParallelOptions& options) {
  return compressed_gradients(options.gradient_compression, options.powersgd_rank);
}

const DataParallelOptions& checked(const DataParallelOptions& options) {
  if (options.comm_buffer_size < 1 || options.last_comm_buffer_size < 1)
    throw UsageError(
        "DataParallel: comm_buffer_size = {} MB and last_comm_buffer_size = {} MB; both must be at least 1",
        options.comm_buffer_size, options.last_comm_buffer_size);
  return options;
}

struct Parameter {
  std::string name;
  torch::Tensor tensor;
  std::shared_ptr<Node> accumulator;
  uintptr_t hook = 0;
};

// Each trainable parameter once, however often it is registered.
std::vector<Parameter> trainable_parameters(const torch::nn::Module& module) {
  std::vector<Parameter> result;
  std::unordered_set<const c10::TensorImpl*> seen;
  for (const auto& item : module.named_parameters())
    if (item.value().requires_grad() && seen.insert(item.value().unsafeGetTensorImpl()).second)
      result.push_back({item.key(), item.value(), torch::autograd::impl::grad_accumulator(item.value())});
  return result;
}

}  // namespace

class GradientSync::Impl : public std::enable_shared_from_this<Impl> {
 public:
  Impl(std::shared_ptr<torch::nn::Module> module, const Group& group, const DataParallelOptions& options)
      : module_(std::move(module)),
        group_(group.new_group(everyone(group))),
        options_(checked(options)),
        hook_(hook_of(options)) {
    require_same_model(*module_, group_);
    parameters_ = trainable_parameters(*module_);
    if (parameters_.empty())
      throw UsageError("DataParallel: the model has no parameter that requires a gradient; it needs no DataParallel");
    copy_state_from(0);
    seen_.resize(parameters_.size());
  }

  void watch_gradients() {
    if (group_.size() == 1) return;
    for (size_t i = 0; i < parameters_.size(); ++i) {
      auto on_gradient = [weak = weak_from_this(), i](const torch::autograd::variable_list& outputs,
                                                      const torch::autograd::variable_list&) {
        if (const auto self = weak.lock()) self->on_gradient(i);
        return outputs;
      };
      parameters_[i].hook = parameters_[i].accumulator->add_post_hook(
          std::make_unique<torch::autograd::utils::LambdaPostHook>(std::move(on_gradient)));
    }
  }

  ~Impl() {
    for (const Parameter& parameter : parameters_)
      if (parameter.hook != 0) parameter.accumulator->del_post_hook(parameter.hook);
  }

  void set_enabled(bool enabled) { enabled_ = enabled; }
  bool enabled() const { return enabled_; }

  void set_hook(GradientHook hook) {
    if (learned_) throw UsageError("set_gradient_hook: after the first backward; set it right after construction");
    hook_ = std::move(hook);
  }

  int bucket_count() const { return static_cast<int>(buckets_.size()); }
  int gradient_count() const { return static_cast<int>(in_use_.size()); }

  void join(const std::function<void()>& train) {
    if (group_.size() == 1) return train();
    if (options_.static_graph) throw UsageError("join() and static_graph = true do not go together; drop one of them");
    if (has_sync_batch_norm(*module_))
      throw UsageError(
          "join() and SyncBatchNorm do not go together: a rank without data has no part in the statistics");
    joining_ = true;
    try {
      train();
      for (;;) {
        const std::vector<int> active = exchange_activity(false);
        if (active.empty()) break;
        shadow_backward(active);
      }
      copy_state_from(last_active_);  // those who were in the last backward together have stepped alike
    } catch (...) {
      joining_ = false;
      group_.abort(fmt::format("rank {} left join() by an exception", group_.rank()));
      throw;
    }
    joining_ = false;
  }

 private:
  static std::vector<int> everyone(const Group& group) {
    std::vector<int> ranks(static_cast<size_t>(group.size()));
    std::iota(ranks.begin(), ranks.end(), 0);
    return ranks;
  }

  // --- one backward, in the order of events

  void on_gradient(size_t index) {
    if (!in_backward_) {
      if (!enabled_) return;
      begin_backward();
    }
    if (parameters_[index].tensor.grad().requires_grad())
      fail(
          "backward(create_graph = true): averaged gradients have no graph; use torch::autograd::grad() for a gradient "
          "that goes into the loss, or no_sync()");
    if (learned_ && place_[index] < 0 && !options_.find_unused_parameters) {
      fail(
          fmt::format("parameter {} gets a gradient now but got none in the first backward; if the model uses other "
                      "parameters from step to step, set find_unused_parameters = true",
                      parameters_[index].name));
    }
    if (seen_[index]++ == 0) order_.push_back(static_cast<int64_t>(index));
    if (learned_) refuse_repeated_gradient(index);  // the Reducer would, in its own words
  }

  void begin_backward() {
    if (broken_)
      throw PeerError(
          "rank {}: an earlier backward() has failed, so the ranks' gradients can no longer be averaged; start "
          "again from a checkpoint, with a new world",
          group_.rank());
    in_backward_ = true;
    std::fill(seen_.begin(), seen_.end(), 0);
    order_.clear();
    at_end_of_backward([self = shared_from_this(), token = failure_token()] { self->end_backward(); });
    active_ = joining_ ? exchange_activity(true) : everyone(group_);
    if (!reducer_) return;
    note_missing_gradients();
    unused_is_told_ = options_.find_unused_parameters && !backward_has_checkpoints();
    reducer_->arm(unused_is_told_ ? not_in_this_graph() : std::vector<size_t>());
  }

  // Held by the callback at the end of the backward. When it goes while the backward is still open, an exception has
  // ended it; some ranks may have averaged what others have not, and some wait for what this one will never give.
  std::shared_ptr<void> failure_token() {
    return {nullptr, [weak = weak_from_this()](void*) {
              if (const auto self = weak.lock(); self && self->in_backward_) self->give_up();
            }};
  }

  void give_up() noexcept {
    in_backward_ = false;
    broken_ = true;
    try {
      group_.abort(fmt::format("an exception has ended the backward() of rank {}", group_.rank()));
    } catch (const std::exception& error) {
      log_warning("rank {}: cannot tell the others that backward() has failed: {}", group_.rank(), error.what());
    }
  }

  // Callbacks of the engine run in the order in which they were queued. Ours was queued first; the Reducer's, which
  // waits for the buckets, later, by the last gradient. So the rest of our end is queued behind it.
  void end_backward() {
    const torch::NoGradGuard no_grad;
    if (!learned_) {
      learn(order_, used_here());
      finish_backward();
      return;
    }
    if (options_.static_graph && !reducer_graph_known_) {
      reducer_graph_known_ = true;
      reducer_->delay_all_reduce();
    } else if (!options_.find_unused_parameters) {
      complain_about_missing();
    } else if (!unused_is_told_) {
      tell_unused();
    }
    torch::autograd::Engine::get_default_engine().queue_callback([self = shared_from_this(), token = failure_token()] {
      const torch::NoGradGuard quiet;
      if (self->options_.find_unused_parameters) self->forget_gradients_nobody_has();
      self->finish_backward();
    });
  }

  void finish_backward() {
    if (options_.broadcast_buffers && !module_->buffers().empty())
      broadcast_tensors(module_->buffers(), active_.front());
    last_active_ = active_.front();
    in_backward_ = false;
  }

  void complain_about_missing() {
    std::vector<std::string> missing;
    for (const size_t index : in_use_)
      if (seen_[index] == 0) missing.push_back(parameters_[index].name);
    if (missing.empty()) return;
    const size_t shown = std::min<size_t>(missing.size(), 10);
    const std::string rest = missing.size() > shown ? fmt::format(" and {} more", missing.size() - shown) : "";
    missing.resize(shown);
    fail(
        fmt::format("no gradient in this backward for {}{}, which had one in the first; if the model uses other "
                    "parameters from step to step, set find_unused_parameters = true",
                    trireme::join(missing, ", "), rest));
  }

  [[noreturn]] void fail(const std::string& reason) {
    group_.abort(reason);
    throw UsageError("rank {}: {}", group_.rank(), reason);
  }

  // --- learning

  std::vector<uint8_t> used_here() const {
    std::vector<uint8_t> used;
    for (const int count : seen_) used.push_back(count > 0);
    return used;
  }

  // Called by every rank at the same place, with its own order and use; those of an absent rank (join) are empty.
  void learn(const std::vector<int64_t>& order, const std::vector<uint8_t>& used) {
    refuse_sparse_gradients();
    for (size_t i = 0; i < parameters_.size(); ++i) refuse_repeated_gradient(i);
    agree_on_use(order, used);
    make_buckets();
    for (size_t bucket = 0; bucket < buckets_.size(); ++bucket) reduce_bucket(bucket);
    make_reducer();
    learned_ = true;
    say_hello();
  }

  void refuse_sparse_gradients() {
    for (const Parameter& parameter : parameters_)
      if (parameter.tensor.grad().defined() && parameter.tensor.grad().is_sparse())
        fail(
            fmt::format("parameter {} has a sparse gradient; DataParallel averages dense ones: make the embedding with "
                        "sparse(false)",
                        parameter.name));
  }

  void refuse_repeated_gradient(size_t index) {
    if (seen_[index] > 1 && !options_.static_graph)
      fail(
          fmt::format("parameter {} got its gradient {} times in one backward (a shared part inside gradient "
                      "checkpoints?); set static_graph = true",
                      parameters_[index].name, seen_[index]));
  }

  // In use is what any rank has used. The order is that of the first active rank, then what only others use.
  void agree_on_use(const std::vector<int64_t>& order, const std::vector<uint8_t>& used) {
    const torch::Tensor map = torch::tensor(std::vector<int64_t>(used.begin(), used.end()), torch::kLong);
    all_reduce(map, ReduceOp::max, group_);
    std::vector<int64_t> agreed(parameters_.size(), -1);
    std::copy(order.begin(), order.end(), agreed.begin());
    const torch::Tensor first = torch::tensor(agreed, torch::kLong);
    broadcast(first, active_.front(), group_);
    place_.assign(parameters_.size(), -1);
    in_use_.clear();
    const auto take = [&](size_t index) {
      if (place_[index] >= 0) return;
      place_[index] = static_cast<int>(in_use_.size());
      in_use_.push_back(index);
    };
    for (int64_t i = 0; i < first.numel() && first[i].item<int64_t>() >= 0; ++i)
      take(static_cast<size_t>(first[i].item<int64_t>()));
    for (size_t i = 0; i < parameters_.size(); ++i)
      if (map[static_cast<int64_t>(i)].item<int64_t>() != 0) take(i);
    // What is unused now may be used later when it may change.
    if (options_.find_unused_parameters)
      for (size_t i = 0; i < parameters_.size(); ++i) take(i);
    globally_used_.assign(map.data_ptr<int64_t>(), map.data_ptr<int64_t>() + map.numel());
  }

  std::vector<torch::Tensor> tensors_in_use() const {
    std::vector<torch::Tensor> tensors;
    for (const size_t index : in_use_) tensors.push_back(parameters_[index].tensor);
    return tensors;
  }

  void make_buckets() {
    std::vector<int64_t> places(in_use_.size());
    std::iota(places.begin(), places.end(), 0);
    std::tie(buckets_, std::ignore) =
        c10d::compute_bucket_assignment_by_size(tensors_in_use(),
                                                {kMega * static_cast<size_t>(options_.last_comm_buffer_size),
                                                 kMega * static_cast<size_t>(options_.comm_buffer_size)},
                                                {}, places);
  }

  // Averages one bucket of the first backward, without overlap.
  void reduce_bucket(size_t number) {
    const std::vector<size_t>& bucket = buckets_[number];
    const torch::Tensor& example = parameters_[in_use_[bucket[0]]].tensor;
    int64_t total = 0;
    for (const size_t place : bucket) total += parameters_[in_use_[place]].tensor.numel();
    const torch::Tensor flat = torch::zeros({total}, example.options().requires_grad(false));
    std::vector<torch::Tensor> views;
    int64_t begin = 0;
    for (const size_t place : bucket) {
      const torch::Tensor& parameter = parameters_[in_use_[place]].tensor;
      views.push_back(flat.narrow(0, begin, parameter.numel()).view(parameter.sizes()));
      if (parameter.grad().defined()) views.back().copy_(parameter.grad());
      begin += parameter.numel();
    }
    hook_({static_cast<int>(number), flat, views}, group_).wait();
    for (size_t i = 0; i < bucket.size(); ++i) {
      const size_t index = in_use_[bucket[i]];
      torch::Tensor parameter = parameters_[index].tensor;
      if (globally_used_[index] == 0) continue;
      if (parameter.grad().defined())
        parameter.mutable_grad().copy_(views[i]);
      else
        parameter.mutable_grad() = views[i].clone();
    }
  }

  void make_reducer() {
    std::unordered_map<size_t, std::string> names;
    for (size_t place = 0; place < in_use_.size(); ++place) names[place] = parameters_[in_use_[place]].name;
    reducer_ = std::make_unique<ArmedReducer>(
        tensors_in_use(), buckets_, group_.state().process_group, std::vector<bool>(in_use_.size(), false),
        static_cast<int64_t>(kMega) * options_.comm_buffer_size, /*find_unused_parameters=*/false,
        /*gradient_as_bucket_view=*/false,  // else the optimizers' zero_grad() throws
        names, static_cast<int64_t>(kMega) * options_.last_comm_buffer_size,
        /*skip_all_reduce_unused_params=*/false, /*use_python_reducer=*/false, std::vector<int64_t>());
    if (options_.static_graph) reducer_->set_static_graph();
    reducer_->register_comm_hook(std::make_unique<HookBridge>(hook_, group_));
  }

  void say_hello() const {
    if (group_.rank() != 0) return;
    int64_t bytes = 0;
    for (const torch::Tensor& tensor : tensors_in_use()) bytes += static_cast<int64_t>(tensor.nbytes());
    log_info("data parallel: {} gradient tensors ({:.1f} MB) fused into {} bucket{}, averaged over {} ranks by {}",
             in_use_.size(), static_cast<double>(bytes) / 1e6, buckets_.size(), buckets_.size() == 1 ? "" : "s",
             group_.size(), parameters_[0].tensor.is_cuda() ? group_.cuda_backend() : group_.backend());
  }

  // --- unused parameters

  // The places of parameters that this backward will not reach. The engine knows its graph; asked by the first
  // gradient.
  std::vector<size_t> not_in_this_graph() const {
    const auto* nodes = torch::autograd::get_current_graph_task_nodes_in_graph();
    std::vector<size_t> places;
    for (size_t place = 0; place < in_use_.size(); ++place)
      if (!nodes->contains(parameters_[in_use_[place]].accumulator.get())) places.push_back(place);
    return places;
  }

  // Later than by arm(): when the graph has not shown what will be reached.
  void tell_unused() {
    for (size_t place = 0; place < in_use_.size(); ++place)
      if (seen_[in_use_[place]] == 0) reducer_->autograd_hook(place);
  }

  // The Reducer gives an average of zeros to a parameter that no rank has used. An optimizer would take that for a
  // gradient (momentum, weight decay), so it goes again.
  void forget_gradients_nobody_has() {
    const std::vector<uint8_t> used = used_here();
    const torch::Tensor map = torch::tensor(std::vector<int64_t>(used.begin(), used.end()), torch::kLong);
    all_reduce(map, ReduceOp::max, group_);
    const int64_t* anyone = map.data_ptr<int64_t>();
    for (size_t i = 0; i < parameters_.size(); ++i)
      if (anyone[i] == 0 && had_no_gradient_[i]) parameters_[i].tensor.mutable_grad().reset();
  }

  void note_missing_gradients() {
    had_no_gradient_.clear();
    for (size_t i = 0; i < parameters_.size(); ++i)
      had_no_gradient_.push_back(seen_[i] == 0 && !parameters_[i].tensor.grad().defined());
  }

  // --- ranks that have run out of data

  // Who is in the coming backward, in rank order; called by all ranks, in a backward or instead of one.
  std::vector<int> exchange_activity(bool active) {
    const torch::Tensor mine = torch::tensor({active ? 1 : 0}, torch::kByte);
    const torch::Tensor all = torch::empty({group_.size()}, torch::kByte);
    all_gather(all, mine, group_);
    std::vector<int> ranks;
    for (int rank = 0; rank < group_.size(); ++rank)
      if (all[rank].item<uint8_t>() != 0) ranks.push_back(rank);
    return ranks;
  }

  // The collectives of one backward of the others, with nothing to give.
  void shadow_backward(const std::vector<int>& active) {
    const torch::NoGradGuard no_grad;
    active_ = active;
    std::fill(seen_.begin(), seen_.end(), 0);
    if (!learned_) {
      for (const Parameter& parameter : parameters_) parameter.tensor.mutable_grad().reset();
      learn({}, used_here());
    } else {
      HookBridge bridge(hook_, group_);
      for (c10d::GradBucket& bucket : reducer_->get_grad_buckets(/*return_zero_tensors=*/true))
        bridge.parseHookResult(bridge.runHook(bucket)->value());
      note_missing_gradients();
      if (options_.find_unused_parameters) forget_gradients_nobody_has();
    }
    finish_backward();
  }

  // --- state

  void copy_state_from(int root) {
    std::vector<torch::Tensor> state = module_->parameters();
    for (const torch::Tensor& buffer : module_->buffers()) state.push_back(buffer);
    broadcast_tensors(state, root);
  }

  void broadcast_tensors(const std::vector<torch::Tensor>& tensors, int root) {
    if (group_.size() == 1) return;
    const torch::NoGradGuard no_grad;
    std::vector<torch::Tensor> detached;
    for (const torch::Tensor& tensor : tensors) detached.push_back(tensor.detach());
    c10d::broadcast_coalesced(group_.state().process_group, detached, 25 * kMega, root);
  }

  const std::shared_ptr<torch::nn::Module> module_;
  const Group group_;
  const DataParallelOptions options_;
  GradientHook hook_;
  std::vector<Parameter> parameters_;
  std::atomic<bool> enabled_ = true;
  bool joining_ = false;

  bool in_backward_ = false;
  bool broken_ = false;                // a backward has not come to its end
  std::vector<int> seen_;              // how often each parameter has got its gradient in this backward
  std::vector<int64_t> order_;         // in which they have come
  std::vector<int> active_;            // who takes part
  int last_active_ = 0;                // the first of those who took part in the last backward
  bool unused_is_told_ = false;        // the Reducer knows what this backward will not reach
  std::vector<bool> had_no_gradient_;  // when this backward began

  bool learned_ = false;
  std::vector<size_t> in_use_;                // parameters in the order of the buckets: place -> parameter
  std::vector<int> place_;                    // parameter -> place, -1 when not in use
  std::vector<int64_t> globally_used_;        // parameters that some rank has used in the first backward
  std::vector<std::vector<size_t>> buckets_;  // places
  std::unique_ptr<ArmedReducer> reducer_;
  bool reducer_graph_known_ = false;
};

GradientSync::GradientSync(std::shared_ptr<torch::nn::Module> module, const Group& group,
                           const DataParallelOptions& options)
    : impl_(std::make_shared<Impl>(std::move(module), group, options)) {
  impl_->watch_gradients();
}
GradientSync::~GradientSync() = default;

void GradientSync::set_enabled(bool enabled) {
  impl_->set_enabled(enabled);
}
bool GradientSync::enabled() const {
  return impl_->enabled();
}
void GradientSync::set_hook(GradientHook hook) {
  impl_->set_hook(std::move(hook));
}
void GradientSync::join(const std::function<void()>& train) {
  impl_->join(train);
}
int GradientSync::bucket_count() const {
  return impl_->bucket_count();
}
int GradientSync::gradient_count() const {
  return impl_->gradient_count();
}

}  // namespace trireme
