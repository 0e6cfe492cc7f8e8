// Our types and operations in MPI's words.
#pragma once

#include <mpi.h>

#include "trireme/comm/engine/dtype.h"

namespace trireme::comm::mpi {

MPI_Datatype datatype_of(DType dtype);

/// MPI's own operation where it means the same. Ours for half and bfloat16, which MPI does not know; for bools, which
/// count as 0 and 1; for 8 and 16 bits, whose sums Open MPI 4.1 lets stick at the largest value instead of wrapping
/// around; and for the minimum and maximum of floating types, where MPI leaves NaN open. avg is not an operation.
MPI_Op operation_of(DType dtype, ReduceOp op);

}  // namespace trireme::comm::mpi
