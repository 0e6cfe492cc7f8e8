// Whether all ranks hold the same parameters, and numbers only.
//
// Averaged gradients keep equal parameters equal. What makes them differ is something that happens on one rank alone:
// weights loaded there, a step of the optimizer that the others did not make, memory that went bad. Nothing fails then,
// the ranks just train apart. A checksum finds it.
#pragma once

#include <torch/nn/module.h>

#include <memory>
#include <string>
#include <vector>

#include "trireme/comm/group.h"
#include "trireme/optim/split_tensors.h"

namespace trireme::parallel {

/// What NaN or infinity in a parameter is.
enum class NonFinite { allowed, error };

/// Called by all members. UsageError on every one that names the first parameter which differs from rank 0's, or is not
/// finite (unless that is allowed), and the rank; `when` says what the ranks were about to do. Reads each parameter
/// once and sends 16 bytes.
void require_equal_parameters(const torch::nn::Module& module, const Group& group, const std::string& when,
                              NonFinite non_finite = NonFinite::error);

/// Called by all members, each with its pieces of the parameters. UsageError on every one that names the first that is not
/// finite, and the rank.
void require_finite(const torch::OrderedDict<std::string, torch::Tensor>& pieces, const Group& group,
                    const std::string& when);

/// What the ranks over which a model's other parameters are split (tensor parallelism) each have whole. Each of them
/// computes its gradients by itself, so it stays equal only as long as inputs, random numbers and clipping are.
struct Replicas {
  std::vector<std::shared_ptr<const optim::SplitTensors>> splits = {};  ///< one for each set of ranks
  torch::OrderedDict<std::string, torch::Tensor> tensors;
  bool on_cpu = true;
};
/// No splits where no parameter is split.
Replicas replicas_of(const torch::nn::Module& module);

/// Called by all ranks of the splits and of `group`, whose ranks have the same model (the data axis). What is wrong, with
/// the name of the first parameter that differs; empty when all are equal. It is empty on all of these ranks or on none.
std::string difference_of_replicas(const Replicas& replicas, const Group& group, const std::string& when);
/// Whether equal replicas that take the same steps must stay equal: on a GPU some operators round as they like.
bool must_stay_equal(const Replicas& replicas);

/// Of the bits, the same on every number of threads. A sharded parameter is gathered for it.
int64_t checksum_of(const torch::Tensor& parameter);

}  // namespace trireme::parallel
