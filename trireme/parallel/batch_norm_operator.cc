#include "trireme/parallel/batch_norm_operator.h"

#include <ATen/ops/batch_norm_native.h>
#include <torch/library.h>
#include <torch/torch.h>

#include <mutex>
#include <unordered_map>
#include <utility>

#include "trireme/core/thread_annotations.h"
#include "trireme/nn/batch_norm_state.h"
#include "trireme/parallel/joined_batch_norm.h"

namespace trireme::parallel {
namespace {

// The marked layers, by a tensor of theirs.
class Marks {
 public:
  void add(const torch::Tensor& tensor, const Group& group) {
    const std::lock_guard lock(mutex_);
    std::erase_if(groups_, [](const auto& item) { return item.second.tensor.expired(); });
    groups_.insert_or_assign(tensor.unsafeGetTensorImpl(), Mark{WeakTensor(tensor.getIntrusivePtr()), group});
  }
  Group find(const torch::Tensor& tensor) const {
    const std::lock_guard lock(mutex_);
    const auto found = groups_.find(tensor.unsafeGetTensorImpl());
    return found == groups_.end() || found->second.tensor.expired() ? Group() : found->second.group;
  }

 private:
  using WeakTensor = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;
  struct Mark {
    WeakTensor tensor;
    Group group;
  };
  mutable Mutex mutex_;
  std::unordered_map<const c10::TensorImpl*, Mark> groups_ TRIREME_GUARDED_BY(mutex_);
};

Marks& marks() {
  static Marks* const all = new Marks;  // never destroyed: groups end with their process, not in static destructors
  return *all;
}

// What a layer may write into: its statistics, or copies that nobody reads.
std::optional<torch::Tensor> writable(const std::optional<torch::Tensor>& statistic, bool training) {
  return nn::running_statistics_stay() && training && statistic && statistic->defined() ? statistic->clone()
                                                                                        : statistic;
}

torch::Tensor batch_norm(const torch::Tensor& input, const std::optional<torch::Tensor>& weight,
                         const std::optional<torch::Tensor>& bias, const std::optional<torch::Tensor>& running_mean,
                         const std::optional<torch::Tensor>& running_var, bool training, double momentum,
                         double epsilon, bool cudnn_enabled) {
  Group group = weight ? batch_norm_group(*weight) : Group();
  if (!group.is_member() && running_mean) group = batch_norm_group(*running_mean);
  if (!training || group.size() < 2)
    return at::native::batch_norm(input, weight, bias, writable(running_mean, training),
                                  writable(running_var, training), training, momentum, epsilon, cudnn_enabled);
  return joined_batch_norm(input, weight, bias,
                           {.running_mean = writable(running_mean, training).value_or(torch::Tensor()),
                            .running_var = writable(running_var, training).value_or(torch::Tensor()),
                            .momentum = momentum,
                            .epsilon = epsilon,
                            .group = group});
}

// Kernels for these keys come before libtorch's own, which is for all devices. They stay until the process ends.
void take_over_batch_norm() {
  // Nobody reads it; unless it is kept, the leak checker takes the libraries for lost.
  [[gnu::used]] static const auto* const kernels = [] {
    auto* libraries = new std::vector<torch::Library>();
    for (const auto key : {c10::DispatchKey::AutogradCPU, c10::DispatchKey::AutogradCUDA}) {
      libraries->emplace_back(torch::Library::IMPL, "aten", key, __FILE__, __LINE__);
      libraries->back().impl("batch_norm", TORCH_FN(batch_norm));
    }
    nn::set_find_norm_peers([](const torch::Tensor& weight) {
      const Group group = batch_norm_group(weight);
      return group.size() > 1 ? norm_peers_of(group) : nullptr;
    });
    return libraries;
  }();
}

}  // namespace

void join_batch_norm(const torch::Tensor& known_by, const Group& group) {
  take_over_batch_norm();
  marks().add(known_by, group);
}

Group batch_norm_group(const torch::Tensor& known_by) {
  return marks().find(known_by);
}

void heed_running_statistics() {
  take_over_batch_norm();
}

}  // namespace trireme::parallel
