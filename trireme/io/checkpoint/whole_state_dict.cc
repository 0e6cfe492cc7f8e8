#include "trireme/io/checkpoint/whole_state_dict.h"

#include <torch/torch.h>

#include "trireme/comm/collectives.h"
#include "trireme/comm/members.h"
#include "trireme/core/error.h"
#include "trireme/parallel/pipeline/pipeline_module.h"

namespace trireme {
namespace {

// Each rank learns what is so along its pipe, then what the others of the group have learnt: all throw, or none.
void require_first(const torch::nn::Module& model, const Group& group) {
  const auto* pipeline = dynamic_cast<const parallel::PipelineModule*>(&model);
  if (!pipeline) return;
  const torch::Tensor elsewhere = torch::full({1}, group.rank() == 0 && pipeline->rank() != 0 ? 1 : 0, torch::kInt);
  all_reduce(elsewhere, ReduceOp::max, pipeline->group());
  all_reduce(elsewhere, ReduceOp::max, group);
  if (elsewhere.item<int>() == 0) return;
  throw UsageError(
      "{}: whole_state_dict: rank 0 of the {} ranks that are given is not pipe 0, where the layers of a Pipeline come "
      "together; give the World, or the Pipeline's own axis",
      own_place(pipeline->group()), group.size());
}

}  // namespace

io::TensorMap whole_state_dict(const io::ModuleRef& model, const Group& group) {
  const torch::NoGradGuard no_grad;
  require_first(*model, group);
  io::TensorMap result;
  const detail::WholeState whole({.model = model});
  for (const detail::WholeTensor& one : whole.state_dict(*model)) {
    const torch::Tensor tensor = one.make();
    if (group.rank() == 0) result.insert(one.name, tensor.detach().to(torch::kCPU, tensor.scalar_type(), false, true));
  }
  return result;
}

}  // namespace trireme
