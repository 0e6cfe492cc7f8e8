// Statistics are gathered, not summed: each rank gives mean, variance and count of its batch, and all combine them in
// rank order (the formula of Chan et al. for two samples, taken over R). That is as exact as one pass over the joined
// batch, which a sum of squares is not, and gives the same bits on every rank.
#include "trireme/parallel/sync_batch_norm.h"

#include <ATen/ops/batch_norm_native.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>
#include <torch/torch.h>

#include <algorithm>
#include <mutex>
#include <unordered_map>

#include "trireme/comm/collectives.h"
#include "trireme/core/error.h"
#include "trireme/core/thread_annotations.h"
#include "trireme/parallel/running_statistics.h"

namespace trireme {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// The marked layers, by a tensor of theirs.
class Marks {
 public:
  void add(const torch::Tensor& tensor, const Group& group) {
    const std::lock_guard lock(mutex_);
    std::erase_if(groups_, [](const auto& item) { return item.second.tensor.expired(); });
    groups_.insert_or_assign(tensor.unsafeGetTensorImpl(), Mark{WeakTensor(tensor.getIntrusivePtr()), group});
  }
  Group find(const std::optional<torch::Tensor>& tensor) const {
    if (!tensor || !tensor->defined()) return {};
    const std::lock_guard lock(mutex_);
    const auto found = groups_.find(tensor->unsafeGetTensorImpl());
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

// All dimensions but the channels'.
std::vector<int64_t> reduced_dims(const torch::Tensor& x) {
  std::vector<int64_t> dims{0};
  for (int64_t i = 2; i < x.dim(); ++i) dims.push_back(i);
  return dims;
}

torch::Tensor per_channel(const torch::Tensor& values, const torch::Tensor& like) {
  std::vector<int64_t> shape(static_cast<size_t>(like.dim()), 1);
  shape[1] = values.numel();
  return values.view(shape);
}

struct Statistics {
  torch::Tensor mean;
  torch::Tensor variance;  // biased
  double count = 0;
};

Statistics local_statistics(const torch::Tensor& x) {
  const int64_t channels = x.size(1);
  const int64_t per_channel = channels == 0 ? 0 : x.numel() / channels;
  const auto count = static_cast<double>(per_channel);
  if (count == 0) return {torch::zeros({channels}, x.options()), torch::zeros({channels}, x.options()), 0};
  auto [variance, mean] = torch::var_mean(x, reduced_dims(x), /*unbiased=*/false);
  return {mean, variance, count};
}

Statistics joined_statistics(const torch::Tensor& x, const Group& group) {
  const Statistics mine = local_statistics(x);
  const int64_t channels = mine.mean.numel();
  const torch::Tensor packed =
      torch::cat({mine.mean, mine.variance, torch::full({1}, mine.count, mine.mean.options())}).to(torch::kDouble);
  torch::Tensor all = torch::empty({group.size(), packed.numel()}, packed.options());
  all_gather(all, packed, group);
  const torch::Tensor counts = all.narrow(1, 2 * channels, 1);
  const torch::Tensor total = counts.sum();
  const torch::Tensor means = all.narrow(1, 0, channels);
  const torch::Tensor mean = (means * counts).sum(0) / total;
  const torch::Tensor variance =
      ((all.narrow(1, channels, channels) + (means - mean).square()) * counts).sum(0) / total;
  return {mean.to(x.scalar_type()), variance.to(x.scalar_type()), total.item<double>()};
}

struct Arguments {
  torch::Tensor running_mean;
  torch::Tensor running_var;
  double momentum = 0;
  double epsilon = 0;
  Group group;
};

void update_running(const Arguments& arguments, const Statistics& joined) {
  if (!arguments.running_mean.defined()) return;
  const torch::NoGradGuard no_grad;
  torch::Tensor mean = arguments.running_mean, variance = arguments.running_var;
  const double unbiased = joined.count / std::max(joined.count - 1, 1.0);
  mean.mul_(1 - arguments.momentum).add_(joined.mean.to(mean.scalar_type()), arguments.momentum);
  variance.mul_(1 - arguments.momentum).add_(joined.variance.to(variance.scalar_type()) * unbiased, arguments.momentum);
}

struct GroupHolder : torch::CustomClassHolder {
  explicit GroupHolder(Group value) : group(std::move(value)) {}
  Group group;
};

class SyncBatchNorm : public torch::autograd::Function<SyncBatchNorm> {
 public:
  // Optional, not undefined: Function takes the latter for tensors that have a device.
  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& input,
                               const std::optional<torch::Tensor>& optional_weight,
                               const std::optional<torch::Tensor>& optional_bias, const Arguments& arguments) {
    const torch::Tensor weight = optional_weight.value_or(torch::Tensor());
    const torch::Tensor bias = optional_bias.value_or(torch::Tensor());
    const torch::Tensor x = input.to(c10::promoteTypes(input.scalar_type(), torch::kFloat));  // half as float
    const Statistics joined = joined_statistics(x, arguments.group);
    update_running(arguments, joined);
    const torch::Tensor inverse = (joined.variance + arguments.epsilon).rsqrt();
    const torch::Tensor normal = (x - per_channel(joined.mean, x)) * per_channel(inverse, x);
    context->save_for_backward({normal, inverse, weight});
    context->saved_data["count"] = joined.count;
    context->saved_data["type"] = static_cast<int64_t>(input.scalar_type());
    context->saved_data["group"] = c10::IValue::make_capsule(c10::make_intrusive<GroupHolder>(arguments.group));
    torch::Tensor y = normal;
    if (weight.defined()) y = y * per_channel(weight, x);
    if (bias.defined()) y = y + per_channel(bias, x);
    return y.to(input.scalar_type());
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const torch::Tensor &normal = saved[0], &inverse = saved[1], &weight = saved[2];
    const auto type = static_cast<torch::ScalarType>(context->saved_data["type"].toInt());
    const Group& group =
        c10::static_intrusive_pointer_cast<GroupHolder>(context->saved_data["group"].toCapsule())->group;
    const torch::Tensor dy = gradients[0].to(normal.scalar_type());
    const torch::Tensor sum_dy = dy.sum(reduced_dims(dy));
    const torch::Tensor sum_dy_normal = (dy * normal).sum(reduced_dims(dy));
    const torch::Tensor sums = torch::stack({sum_dy, sum_dy_normal});
    all_reduce(sums, ReduceOp::sum, group);
    const torch::Tensor means = sums / context->saved_data["count"].toDouble();
    torch::Tensor scale = inverse;
    if (weight.defined()) scale = scale * weight;
    const torch::Tensor dx =
        per_channel(scale, dy) * (dy - per_channel(means[0], dy) - normal * per_channel(means[1], dy));
    return {dx.to(type), weight.defined() ? sum_dy_normal.to(weight.scalar_type()) : torch::Tensor(),
            weight.defined() ? sum_dy.to(weight.scalar_type()) : torch::Tensor(), torch::Tensor()};
  }
};

thread_local bool statistics_stay = false;

// What a layer may write into: its statistics, or copies that nobody reads.
std::optional<torch::Tensor> writable(const std::optional<torch::Tensor>& statistic, bool training) {
  return statistics_stay && training && statistic && statistic->defined() ? statistic->clone() : statistic;
}

torch::Tensor batch_norm(const torch::Tensor& input, const std::optional<torch::Tensor>& weight,
                         const std::optional<torch::Tensor>& bias, const std::optional<torch::Tensor>& running_mean,
                         const std::optional<torch::Tensor>& running_var, bool training, double momentum,
                         double epsilon, bool cudnn_enabled) {
  Group group = marks().find(weight);
  if (!group.is_member()) group = marks().find(running_mean);
  if (!training || group.size() < 2)
    return at::native::batch_norm(input, weight, bias, writable(running_mean, training),
                                  writable(running_var, training), training, momentum, epsilon, cudnn_enabled);
  return SyncBatchNorm::apply(
      input, weight, bias,
      Arguments{writable(running_mean, training).value_or(torch::Tensor()),
                writable(running_var, training).value_or(torch::Tensor()), momentum, epsilon, group});
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
    return libraries;
  }();
}

template <typename Layer>
bool mark(const torch::nn::Module& module, const std::string& name, const Group& group) {
  const auto* layer = module.as<Layer>();
  if (!layer) return false;
  const torch::Tensor& known_by = layer->weight.defined() ? layer->weight : layer->running_mean;
  if (!known_by.defined())
    throw UsageError(
        "batch normalisation {} has neither weight nor running statistics, so it cannot be marked; give it "
        "affine(true) or track_running_stats(true)",
        name.empty() ? "(the module itself)" : name);
  marks().add(known_by, group);
  return true;
}

}  // namespace

RunningStatisticsStay::RunningStatisticsStay() : before_(std::exchange(statistics_stay, true)) {
  take_over_batch_norm();
}

RunningStatisticsStay::~RunningStatisticsStay() {
  statistics_stay = before_;
}

int convert_sync_batch_norm(torch::nn::Module& module, const Group& group) {
  take_over_batch_norm();
  int count = 0;
  for (const auto& item : module.named_modules("", /*include_self=*/true)) {
    const torch::nn::Module& child = *item.value();
    count += mark<torch::nn::BatchNorm1dImpl>(child, item.key(), group) ||
             mark<torch::nn::BatchNorm2dImpl>(child, item.key(), group) ||
             mark<torch::nn::BatchNorm3dImpl>(child, item.key(), group);
  }
  return count;
}

bool has_sync_batch_norm(const torch::nn::Module& module) {
  const std::vector<torch::Tensor> parameters = module.parameters(), buffers = module.buffers();
  const auto marked = [](const torch::Tensor& tensor) { return marks().find(tensor).is_member(); };
  return std::any_of(parameters.begin(), parameters.end(), marked) ||
         std::any_of(buffers.begin(), buffers.end(), marked);
}

}  // namespace trireme
