// What the scheduler that started this launcher says about its job, in the words of the launcher's own options:
//
//   srun --ntasks-per-node=1 trireme launch ./train      Slurm            --nnodes, --rank, --master
//   mpirun -N 1 trireme launch ./train                   Open MPI         --nnodes, --rank, --master
//                                                        MPICH, Intel     --nnodes, --rank
//   an indexed Job's pod with --nnodes                   Kubernetes       --rank, --master
//
// A PyTorchJob (Kubeflow) speaks in torchrun's own variables, PET_*: they are in the table of options.
#pragma once

#include <string>
#include <vector>

#include "trireme/core/option_values.h"
#include "trireme/launch/plan.h"

namespace trireme::launch {

/// An option, and the value that the scheduler's variables give to it.
struct ClusterOption {
  std::string option;  // "--rank"
  Given value;         // its source is a variable, or says where it comes from
};

/// Nothing for a job of one machine, and where no scheduler is known. Pure. Throws UsageError when the scheduler has
/// started several launchers on one machine: each would start all processes of the machine.
std::vector<ClusterOption> cluster_options(const Environment& variables);

/// Whether this is a pod of an indexed Job: how many there are is not in its variables.
bool is_indexed_pod(const Environment& variables);

/// The first name of a list as Slurm writes it: "node07" of "node[07-09,12],login".
std::string first_host(const std::string& list);

/// An address for the scheduler's name of node 0 if the name itself says nothing to the resolver: Slurm is asked for
/// the node's address, and a pod's name gets the domain of this one. Otherwise the name as it is.
std::string cluster_address(const std::string& host, const Environment& variables);

}  // namespace trireme::launch
