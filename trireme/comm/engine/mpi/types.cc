#include <array>
#include <map>
#include <stdexcept>
#include <utility>

#include "trireme/comm/engine/mpi/library_impl.h"
#include "trireme/comm/engine/mpi/types_impl.h"
#include "trireme/comm/engine/shm/reduce.h"
#include "trireme/core/thread_annotations.h"

namespace trireme::comm::mpi {
namespace {

// As MPI wants it: inout = in op inout.
template <DType dtype, ReduceOp op>
void join(void* in, void* inout, int* length, MPI_Datatype* /*type*/) {
  const std::byte* sources[] = {static_cast<const std::byte*>(in), static_cast<const std::byte*>(inout)};
  shm::reduce(dtype, op, sources, static_cast<size_t>(*length), static_cast<std::byte*>(inout));
}

template <DType dtype>
constexpr std::array kJoinersOf = {join<dtype, ReduceOp::sum>, join<dtype, ReduceOp::prod>, join<dtype, ReduceOp::min>,
                                   join<dtype, ReduceOp::max>};

// By type, in the order of kDTypes, and by operation, in the order of kReduceOps.
constexpr std::array kJoiners = {kJoinersOf<DType::f32>,    kJoinersOf<DType::f64>, kJoinersOf<DType::f16>,
                                 kJoinersOf<DType::bf16>,   kJoinersOf<DType::i8>,  kJoinersOf<DType::u8>,
                                 kJoinersOf<DType::i16>,    kJoinersOf<DType::i32>, kJoinersOf<DType::i64>,
                                 kJoinersOf<DType::boolean>};
static_assert(kJoiners.size() == std::size(kDTypes));

// Whether MPI's own operation means the same as ours (types_impl.h).
bool mpi_serves(DType dtype, ReduceOp op) {
  const bool ordered = op == ReduceOp::min || op == ReduceOp::max;
  return size_of(dtype) >= 4 && !(is_floating(dtype) && ordered);
}

// Made once for each function, never freed: MPI_Finalize does it.
MPI_Op own_operation(MPI_User_function* joiner) {
  static Mutex mutex;
  static std::map<MPI_User_function*, MPI_Op> made TRIREME_GUARDED_BY(mutex);
  const std::lock_guard lock(mutex);
  const auto [entry, is_new] = made.emplace(joiner, MPI_OP_NULL);
  if (is_new) {
    const auto turn = Library::get().turn();
    check(MPI_Op_create(joiner, 1, &entry->second), "MPI_Op_create");
  }
  return entry->second;
}

}  // namespace

MPI_Datatype datatype_of(DType dtype) {
  static const std::array kTypes = {MPI_FLOAT,   MPI_DOUBLE,  MPI_UINT16_T, MPI_UINT16_T, MPI_INT8_T,
                                    MPI_UINT8_T, MPI_INT16_T, MPI_INT32_T,  MPI_INT64_T,  MPI_UINT8_T};
  return kTypes.at(static_cast<size_t>(dtype));
}

MPI_Op operation_of(DType dtype, ReduceOp op) {
  static const std::array kOperations = {MPI_SUM, MPI_PROD, MPI_MIN, MPI_MAX};
  const auto index = static_cast<size_t>(op);
  if (op == ReduceOp::avg) throw std::logic_error("avg is a sum and a division");
  if (mpi_serves(dtype, op)) return kOperations.at(index);
  return own_operation(kJoiners.at(static_cast<size_t>(dtype)).at(index));
}

}  // namespace trireme::comm::mpi
