#include "trireme/parallel/power_sgd.h"

#include <torch/torch.h>

#include <map>

#include "trireme/comm/collectives.h"
#include "trireme/core/error.h"

namespace trireme::parallel {
namespace {

// What is kept of one matrix between two steps.
struct Memory {
  torch::Tensor q;      // m x rank
  torch::Tensor error;  // n x m: what the last product had lost
};

// One matrix of the bucket in this step.
struct Factor {
  torch::Tensor matrix;  // n x m, a view of the bucket
  Memory* memory;
  torch::Tensor p;
};

// All tensors in one, so that they travel together.
torch::Tensor joined(const std::vector<torch::Tensor>& tensors) {
  std::vector<torch::Tensor> flat;
  for (const torch::Tensor& tensor : tensors) flat.push_back(tensor.reshape(-1));
  return torch::cat(flat);
}

void average(const std::vector<torch::Tensor>& tensors, const Group& group) {
  if (tensors.empty()) return;
  const torch::Tensor all = joined(tensors);
  all_reduce(all, ReduceOp::avg, group);
  int64_t begin = 0;
  for (const torch::Tensor& tensor : tensors) {
    tensor.copy_(all.narrow(0, begin, tensor.numel()).view(tensor.sizes()));
    begin += tensor.numel();
  }
}

class PowerSgd {
 public:
  explicit PowerSgd(int rank) : rank_(rank) {
    if (rank < 1) throw UsageError("powersgd: rank {}; it must be at least 1", rank);
  }

  Work operator()(const GradientBucket& bucket, const Group& group) {
    const torch::NoGradGuard no_grad;
    std::vector<Factor> factors;
    std::vector<torch::Tensor> plain;
    for (size_t i = 0; i < bucket.gradients.size(); ++i) {
      const torch::Tensor& gradient = bucket.gradients[i];
      if (shrinks(gradient))
        factors.push_back({gradient.view({gradient.size(0), -1}), &memory(bucket.index, i, gradient), {}});
      else
        plain.push_back(gradient);
    }
    average(plain, group);
    compress(factors, group);
    return Work();
  }

 private:
  bool shrinks(const torch::Tensor& gradient) const {
    if (gradient.dim() < 2 || !gradient.is_floating_point() || !gradient.is_contiguous()) return false;
    const int64_t n = gradient.size(0);
    const int64_t m = gradient.numel() / std::max<int64_t>(n, 1);
    return (n + m) * rank_ < n * m;
  }

  Memory& memory(int bucket, size_t place, const torch::Tensor& gradient) {
    Memory& memory = memory_[{bucket, place}];
    const int64_t n = gradient.size(0);
    const int64_t m = gradient.numel() / n;
    if (!memory.error.defined() || memory.error.size(0) != n || memory.error.size(1) != m) {  // new, or rebuilt buckets
      auto generator = at::make_generator<at::CPUGeneratorImpl>(static_cast<uint64_t>(n * 1000003 + m));
      memory.q =
          torch::randn({m, rank_}, generator, torch::TensorOptions(torch::kFloat)).to(gradient.options().dtype());
      memory.q = memory.q.to(gradient.device());
      memory.error = torch::zeros({n, m}, gradient.options());
    }
    return memory;
  }

  static void compress(std::vector<Factor>& factors, const Group& group) {
    std::vector<torch::Tensor> ps, qs;
    for (Factor& factor : factors) {
      factor.matrix.add_(factor.memory->error);
      factor.memory->error.copy_(factor.matrix);
      factor.p = factor.matrix.matmul(factor.memory->q);
      ps.push_back(factor.p);
    }
    average(ps, group);
    for (Factor& factor : factors) {
      factor.p = orthogonal(factor.p);
      factor.memory->q = factor.matrix.t().matmul(factor.p);
      qs.push_back(factor.memory->q);
    }
    average(qs, group);
    for (Factor& factor : factors) {
      factor.matrix.copy_(factor.p.matmul(factor.memory->q.t()));
      factor.memory->error.sub_(factor.matrix);
    }
  }

  // Gram-Schmidt: a few columns, no LAPACK. A column of zeros stays one.
  static torch::Tensor orthogonal(const torch::Tensor& p) {
    const torch::Tensor result = p.to(torch::kFloat).clone();
    for (int64_t i = 0; i < result.size(1); ++i) {
      const torch::Tensor column = result.select(1, i);
      if (i > 0) {
        const torch::Tensor before = result.narrow(1, 0, i);
        column.sub_(before.matmul(before.t().matmul(column)));
      }
      column.div_(column.norm().clamp_min(1e-12));
    }
    return result.to(p.scalar_type());
  }

  const int64_t rank_;
  std::map<std::pair<int, size_t>, Memory> memory_;
};

}  // namespace

GradientHook power_sgd(int rank) {
  const auto state = std::make_shared<PowerSgd>(rank);
  return [state](const GradientBucket& bucket, const Group& group) { return (*state)(bucket, group); };
}

}  // namespace trireme::parallel
