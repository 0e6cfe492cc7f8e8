// Statistics are gathered, not summed: each rank gives mean, variance and count of its batch, and all combine them in
// rank order (the formula of Chan et al. for two samples, taken over R). That is as exact as one pass over the joined
// batch, which a sum of squares is not, and gives the same bits on every rank.
#include "trireme/parallel/joined_batch_norm.h"

#include <torch/csrc/autograd/custom_function.h>
#include <torch/torch.h>

#include <algorithm>

#include "trireme/comm/collectives.h"
#include "trireme/nn/fused/batch_norm_act.h"

namespace trireme::parallel {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

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

class GroupPeers : public nn::NormPeers {
 public:
  explicit GroupPeers(Group group) : group_(std::move(group)) {}

  torch::Tensor join(const torch::Tensor& moments) const override {
    const int64_t channels = moments.numel() / 2;
    torch::Tensor all = torch::empty({group_.size(), moments.numel()}, moments.options());
    all_gather(all, moments, group_);
    const torch::Tensor counts = all.narrow(1, 2 * channels, 1);
    const torch::Tensor total = counts.sum(0);
    const torch::Tensor means = all.narrow(1, 0, channels);
    const torch::Tensor mean = (means * counts).sum(0) / total;
    const torch::Tensor variance =
        ((all.narrow(1, channels, channels) + (means - mean).square()) * counts).sum(0) / total;
    return torch::cat({mean, variance, total});
  }

  torch::Tensor sum(const torch::Tensor& sums) const override {
    torch::Tensor all = sums.clone();
    all_reduce(all, ReduceOp::sum, group_);
    return all;
  }

 private:
  Group group_;
};

Statistics joined_statistics(const torch::Tensor& x, const Group& group) {
  const Statistics mine = local_statistics(x);
  const int64_t channels = mine.mean.numel();
  const torch::Tensor all = GroupPeers(group).join(
      torch::cat({mine.mean, mine.variance, torch::full({1}, mine.count, mine.mean.options())}).to(torch::kDouble));
  return {all.narrow(0, 0, channels).to(x.scalar_type()), all.narrow(0, channels, channels).to(x.scalar_type()),
          all[2 * channels].item<double>()};
}

void update_running(const JoinedBatchNormOptions& options, const Statistics& joined) {
  if (!options.running_mean.defined()) return;
  const torch::NoGradGuard no_grad;
  torch::Tensor mean = options.running_mean, variance = options.running_var;
  const double unbiased = joined.count / std::max(joined.count - 1, 1.0);
  mean.mul_(1 - options.momentum).add_(joined.mean.to(mean.scalar_type()), options.momentum);
  variance.mul_(1 - options.momentum).add_(joined.variance.to(variance.scalar_type()) * unbiased, options.momentum);
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
                               const std::optional<torch::Tensor>& optional_bias,
                               const JoinedBatchNormOptions& options) {
    const torch::Tensor weight = optional_weight.value_or(torch::Tensor());
    const torch::Tensor bias = optional_bias.value_or(torch::Tensor());
    const torch::Tensor x = input.to(c10::promoteTypes(input.scalar_type(), torch::kFloat));  // half as float
    const Statistics joined = joined_statistics(x, options.group);
    update_running(options, joined);
    const torch::Tensor inverse = (joined.variance + options.epsilon).rsqrt();
    const torch::Tensor normal = (x - per_channel(joined.mean, x)) * per_channel(inverse, x);
    context->save_for_backward({normal, inverse, weight});
    context->saved_data["count"] = joined.count;
    context->saved_data["type"] = static_cast<int64_t>(input.scalar_type());
    context->saved_data["group"] = c10::IValue::make_capsule(c10::make_intrusive<GroupHolder>(options.group));
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
    const torch::Tensor sums = GroupPeers(group).sum(torch::stack({sum_dy, sum_dy_normal}).to(torch::kDouble));
    const torch::Tensor means = (sums / context->saved_data["count"].toDouble()).to(normal.scalar_type());
    torch::Tensor scale = inverse;
    if (weight.defined()) scale = scale * weight;
    const torch::Tensor dx =
        per_channel(scale, dy) * (dy - per_channel(means[0], dy) - normal * per_channel(means[1], dy));
    return {dx.to(type), weight.defined() ? sum_dy_normal.to(weight.scalar_type()) : torch::Tensor(),
            weight.defined() ? sum_dy.to(weight.scalar_type()) : torch::Tensor(), torch::Tensor()};
  }
};

bool can_fuse(const torch::Tensor& input, const std::optional<torch::Tensor>& weight,
              const std::optional<torch::Tensor>& bias) {
  const auto fits = [&](const std::optional<torch::Tensor>& row) {
    return row && row->defined() && row->options().type_equal(input.options()) && row->is_contiguous() &&
           row->numel() == input.size(1);
  };
  return nn::fused::can_fuse_input(input) && fits(weight) && fits(bias);
}

}  // namespace

std::shared_ptr<const nn::NormPeers> norm_peers_of(const Group& group) {
  return std::make_shared<GroupPeers>(group);
}

torch::Tensor joined_batch_norm(const torch::Tensor& input, const std::optional<torch::Tensor>& weight,
                                const std::optional<torch::Tensor>& bias, const JoinedBatchNormOptions& options) {
  if (!can_fuse(input, weight, bias)) return SyncBatchNorm::apply(input, weight, bias, options);
  const nn::fused::Normalised result = nn::fused::normalise_act(
      {.x = input, .weight = *weight, .bias = *bias, .epsilon = options.epsilon}, norm_peers_of(options.group));
  update_running(options, {result.statistics[0], result.statistics[2], result.count});
  return result.y;
}

}  // namespace trireme::parallel
