// Which layers lie on which rank: agreed on by all ranks, or refused by all of them.
#pragma once

#include <memory>
#include <vector>

#include "trireme/comm/group.h"
#include "trireme/parallel/pipeline/pipeline.h"
#include "trireme/parallel/pipeline/stages.h"

namespace trireme::parallel {

/// Called by every rank of the pipeline. UsageError on every one when layers or options differ or cannot be.
StagePlan plan_of(std::vector<PipelineLayer> layers, const PipelineOptions& options, const Group& pipe);

/// Called by every rank: its stages. UsageError on every one when layers share parameters without saying so, or one cannot
/// be made.
std::vector<std::shared_ptr<StageModule>> make_stages(const StagePlan& plan, torch::Device device, const Group& pipe);

}  // namespace trireme::parallel
