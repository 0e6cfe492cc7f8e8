// The parameters of a model as the members of its units (shard_plan.h, shard_unit.h).
#pragma once

#include <torch/nn/module.h>

#include <optional>
#include <vector>

#include "trireme/parallel/sharded/shard_plan.h"
#include "trireme/parallel/sharded/shard_unit.h"

namespace trireme::parallel {

/// Each parameter once, however often it is registered. With a `low` type those of floating point are to be gathered in
/// it, except those of normalisations, as in optim::lower_precision(). UsageError when there are none.
std::vector<UnitMember> members_of(const torch::nn::Module& module, std::optional<c10::ScalarType> low = {});

/// Before a model is split. UsageError for parameters that are tied by their memory alone: each would get memory of its own,
/// and they would part without a word.
void require_own_memory(const torch::nn::Module& module);

/// What plan_units() asks for. The parameters in `alone` get units of their own.
std::vector<PlannedTensor> planned(const std::vector<UnitMember>& members,
                                   const std::vector<torch::Tensor>& alone = {});

}  // namespace trireme::parallel
