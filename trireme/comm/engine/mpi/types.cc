#include <map>
#include <stdexcept>
#include <utility>

#include "trireme/comm/engine/mpi/library_impl.h"
#include "trireme/comm/engine/mpi/types_impl.h"
#include "trireme/comm/engine/shm/reduce.h"
#include "trireme/core/thread_annotations.h"

namespace trireme::mpi {
namespace {

// As MPI wants it: inout = in op inout.
template <DType dtype, ReduceOp op>
void join(void* in, void* inout, int* length, MPI_Datatype* /*type*/) {
  const std::byte* sources[] = {static_cast<const std::byte*>(in), static_cast<const std::byte*>(inout)};
  shm::reduce(dtype, op, sources, static_cast<size_t>(*length), static_cast<std::byte*>(inout));
}

template <DType dtype>
MPI_User_function* joiner_for(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
      return join<dtype, ReduceOp::sum>;
    case ReduceOp::prod:
      return join<dtype, ReduceOp::prod>;
    case ReduceOp::min:
      return join<dtype, ReduceOp::min>;
    case ReduceOp::max:
      return join<dtype, ReduceOp::max>;
    default:
      throw std::logic_error("avg is a sum and a division");
  }
}

// Null where MPI's own operation serves.
MPI_User_function* own_joiner(DType dtype, ReduceOp op) {
  const bool ordered = op == ReduceOp::min || op == ReduceOp::max;
  switch (dtype) {
    case DType::f32:
      return ordered ? joiner_for<DType::f32>(op) : nullptr;
    case DType::f64:
      return ordered ? joiner_for<DType::f64>(op) : nullptr;
    case DType::f16:
      return joiner_for<DType::f16>(op);
    case DType::bf16:
      return joiner_for<DType::bf16>(op);
    case DType::i8:
      return joiner_for<DType::i8>(op);
    case DType::u8:
      return joiner_for<DType::u8>(op);
    case DType::i16:
      return joiner_for<DType::i16>(op);
    case DType::boolean:
      return joiner_for<DType::boolean>(op);
    case DType::i32:
    case DType::i64:
      return nullptr;
  }
  throw std::logic_error("no such DType");
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
  switch (dtype) {
    case DType::f32:
      return MPI_FLOAT;
    case DType::f64:
      return MPI_DOUBLE;
    case DType::f16:
    case DType::bf16:
      return MPI_UINT16_T;
    case DType::i8:
      return MPI_INT8_T;
    case DType::u8:
    case DType::boolean:
      return MPI_UINT8_T;
    case DType::i16:
      return MPI_INT16_T;
    case DType::i32:
      return MPI_INT32_T;
    case DType::i64:
      return MPI_INT64_T;
  }
  throw std::logic_error("no such DType");
}

MPI_Op operation_of(DType dtype, ReduceOp op) {
  if (MPI_User_function* joiner = own_joiner(dtype, op)) return own_operation(joiner);
  switch (op) {
    case ReduceOp::sum:
      return MPI_SUM;
    case ReduceOp::prod:
      return MPI_PROD;
    case ReduceOp::min:
      return MPI_MIN;
    case ReduceOp::max:
      return MPI_MAX;
    case ReduceOp::avg:
      break;
  }
  throw std::logic_error("avg is a sum and a division");
}

}  // namespace trireme::mpi
