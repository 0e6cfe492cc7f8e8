#include "trireme/parallel/bucket_reducer.h"

#include <torch/torch.h>

#include <numeric>
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>
#include <unordered_map>
#include <utility>

#include "trireme/comm/group_state.h"

namespace trireme::parallel {
namespace {

constexpr size_t kMega = size_t{1} << 20;

// Our hooks as the Reducer wants them. It waits for a future and then asks for the result; our Work is waited for when
// it asks, on the thread that needs the result.
class HookBridge final : public c10d::CommHookInterface {
 public:
  HookBridge(GradientHook hook, Group group) : hook_(std::move(hook)), group_(std::move(group)) {}

  c10::intrusive_ptr<c10::ivalue::Future> runHook(c10d::GradBucket& bucket) override {
    const torch::NoGradGuard no_grad;
    const size_t index = bucket.getIndex();
    if (pending_.size() <= index) pending_.resize(index + 1);
    pending_[index].flat = bucket.getBuffer();
    pending_[index].work = hook_({static_cast<int>(index), bucket.getBuffer(), bucket.getGradients()}, group_);
    auto future = c10::make_intrusive<c10::ivalue::Future>(c10::IntType::get());
    future->markCompleted(static_cast<int64_t>(index));
    return future;
  }

  torch::Tensor parseHookResult(const c10::IValue& index) override {
    const torch::NoGradGuard no_grad;
    Pending& bucket = pending_[static_cast<size_t>(index.toInt())];
    bucket.work.wait();
    return bucket.flat;
  }

 private:
  struct Pending {
    torch::Tensor flat;
    Work work;
  };
  GradientHook hook_;
  Group group_;
  std::vector<Pending> pending_;
};

std::unordered_map<size_t, std::string> by_place(const std::vector<std::string>& names) {
  std::unordered_map<size_t, std::string> result;
  for (size_t place = 0; place < names.size(); ++place) result[place] = names[place];
  return result;
}

}  // namespace

// Tells the Reducer about a backward in the middle of it, which its public face does not foresee.
class BucketReducer::Armed final : public c10d::Reducer {
 public:
  template <typename... Args>
  explicit Armed(Args&&... args) : Reducer(std::forward<Args>(args)...) {
    has_rebuilt_bucket_ = true;  // the buckets come in the order of the gradients already
  }

  void arm(std::vector<size_t> unused) {
    prepare_for_forward();
    prepare_for_backward({});
    unused_parameters_ = std::move(unused);
  }
};

Buckets make_buckets(const std::vector<torch::Tensor>& tensors, const DataParallelOptions& options) {
  std::vector<int64_t> places(tensors.size());
  std::iota(places.begin(), places.end(), 0);
  const std::vector<size_t> limits = {kMega * static_cast<size_t>(options.last_comm_buffer_size),
                                      kMega * static_cast<size_t>(options.comm_buffer_size)};
  return std::get<0>(c10d::compute_bucket_assignment_by_size(tensors, limits, {}, places));
}

BucketReducer::BucketReducer(const std::vector<torch::Tensor>& tensors, const std::vector<std::string>& names,
                             const Buckets& buckets, const Group& group, const GradientHook& hook,
                             const DataParallelOptions& options)
    : group_(group), hook_(hook) {
  reducer_ = std::make_unique<Armed>(
      tensors, buckets, group.state().process_group, std::vector<bool>(tensors.size(), false),
      static_cast<int64_t>(kMega) * options.comm_buffer_size, /*find_unused_parameters=*/false,
      /*gradient_as_bucket_view=*/false,  // else the optimizers' zero_grad() throws
      by_place(names), static_cast<int64_t>(kMega) * options.last_comm_buffer_size,
      /*skip_all_reduce_unused_params=*/false, /*use_python_reducer=*/false, std::vector<int64_t>());
  if (options.static_graph) reducer_->set_static_graph();
  reducer_->register_comm_hook(std::make_unique<HookBridge>(hook, group));
}

BucketReducer::~BucketReducer() = default;

void BucketReducer::arm(std::vector<size_t> unused) {
  reducer_->arm(std::move(unused));
}

void BucketReducer::mark_ready(size_t place) {
  reducer_->autograd_hook(place);
}

void BucketReducer::reduce_late() {
  reducer_->delay_all_reduce();
}

void BucketReducer::reduce_zeros() {
  HookBridge bridge(hook_, group_);
  for (c10d::GradBucket& bucket : reducer_->get_grad_buckets(/*return_zero_tensors=*/true))
    bridge.parseHookResult(bridge.runHook(bucket)->value());
}

}  // namespace trireme::parallel
