#include "trireme/parallel/bucket_plan.h"

#include <torch/torch.h>

#include <algorithm>

#include "trireme/comm/collectives.h"

namespace trireme::parallel {
namespace {

/// The order of `root`, which every rank gets. Ends with -1 where root has used fewer parameters.
std::vector<int64_t> order_of(const std::vector<int64_t>& mine, size_t parameters, int root, const Group& group) {
  std::vector<int64_t> padded(parameters, -1);
  std::copy(mine.begin(), mine.end(), padded.begin());
  const torch::Tensor order = torch::tensor(padded, torch::kLong);
  broadcast(order, root, group);
  return {order.data_ptr<int64_t>(), order.data_ptr<int64_t>() + order.numel()};
}

void put_in_use(BucketPlan& plan, size_t parameter) {
  if (plan.place[parameter] >= 0) return;
  plan.place[parameter] = static_cast<int>(plan.in_use.size());
  plan.in_use.push_back(parameter);
}

/// The gradients of a bucket one after the other, and views of them in the parameters' shapes.
struct Flat {
  torch::Tensor flat;
  std::vector<torch::Tensor> views;
};

Flat flatten(const std::vector<torch::Tensor>& parameters) {
  int64_t total = 0;
  for (const torch::Tensor& parameter : parameters) total += parameter.numel();
  Flat bucket{torch::zeros({total}, parameters[0].options().requires_grad(false)), {}};
  int64_t begin = 0;
  for (const torch::Tensor& parameter : parameters) {
    bucket.views.push_back(bucket.flat.narrow(0, begin, parameter.numel()).view(parameter.sizes()));
    if (parameter.grad().defined()) bucket.views.back().copy_(parameter.grad());
    begin += parameter.numel();
  }
  return bucket;
}

void set_gradient(const torch::Tensor& parameter, const torch::Tensor& value) {
  if (parameter.grad().defined())
    parameter.mutable_grad().copy_(value);
  else
    parameter.mutable_grad() = value.clone();
}

}  // namespace

std::vector<torch::Tensor> BucketPlan::tensors(const std::vector<ModelParameter>& parameters) const {
  std::vector<torch::Tensor> tensors;
  for (const size_t parameter : in_use) tensors.push_back(parameters[parameter].tensor);
  return tensors;
}

std::vector<std::string> BucketPlan::names(const std::vector<ModelParameter>& parameters) const {
  std::vector<std::string> names;
  for (const size_t parameter : in_use) names.push_back(parameters[parameter].name);
  return names;
}

std::vector<uint8_t> used_by_any(const std::vector<uint8_t>& used, const Group& group) {
  const torch::Tensor map = torch::tensor(std::vector<int64_t>(used.begin(), used.end()), torch::kLong);
  all_reduce(map, ReduceOp::max, group);
  return {map.data_ptr<int64_t>(), map.data_ptr<int64_t>() + map.numel()};
}

BucketPlan agree_on_buckets(const SeenGradients& mine, const std::vector<ModelParameter>& parameters,
                            const AgreeOptions& agree) {
  BucketPlan plan;
  plan.place.assign(parameters.size(), -1);
  plan.has_used = used_by_any(mine.used, agree.group);
  for (const int64_t parameter : order_of(mine.order, parameters.size(), agree.root, agree.group))
    if (parameter >= 0) put_in_use(plan, static_cast<size_t>(parameter));
  for (size_t i = 0; i < parameters.size(); ++i)
    if (plan.has_used[i] != 0) put_in_use(plan, i);
  if (agree.options.find_unused_parameters)
    for (size_t i = 0; i < parameters.size(); ++i) put_in_use(plan, i);
  plan.buckets = make_buckets(plan.tensors(parameters), agree.options);
  return plan;
}

void average_now(const BucketPlan& plan, const std::vector<ModelParameter>& parameters, const GradientHook& hook,
                 const Group& group) {
  const std::vector<torch::Tensor> tensors = plan.tensors(parameters);
  for (size_t number = 0; number < plan.buckets.size(); ++number) {
    std::vector<torch::Tensor> members;
    for (const size_t place : plan.buckets[number]) members.push_back(tensors[place]);
    const Flat bucket = flatten(members);
    hook({static_cast<int>(number), bucket.flat, bucket.views}, group).wait();
    for (size_t i = 0; i < members.size(); ++i)
      if (plan.has_used[plan.in_use[plan.buckets[number][i]]] != 0) set_gradient(members[i], bucket.views[i]);
  }
}

}  // namespace trireme::parallel
