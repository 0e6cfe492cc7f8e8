// What a rank computes, line by line, for finding the layer in which it hangs or ends (GLOG_v=3).
//
//   log_operators(rank);     "rank 0 runs aten::conv2d Float[32, 3, 224, 224] Float[64, 3, 7, 7]"
#pragma once

namespace trireme::comm {

/// From now on each operator that the program calls (layers are made of them), and each function of a backward, is logged
/// before it runs, with the shapes of its tensors; not the operators that it calls itself. Once in a process.
void log_operators(int rank);

}  // namespace trireme::comm
