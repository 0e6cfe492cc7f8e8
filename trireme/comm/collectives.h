// Operations of all members of a group, and messages between two of them.
//
//   all_reduce(loss);                                          // the sum, everywhere
//   all_reduce(loss, ReduceOp::avg, group);
//   Work work = broadcast_async(weights, 0);  …  work.wait();
//   std::vector<std::string> names = all_gather_object(hostname);
//
// Every operation has a form that returns when it is done and one, ending in _async, that returns a Work. Tensors may
// be empty, of any layout and larger than any buffer; CPU and CUDA. Reductions: float, double, half, bfloat16,
// integers, bool, complex (sum and avg); avg needs a floating type. Half and bfloat16 are added in float and rounded
// once, by the shm backend. Data movements: any type. `root`, `to` and `from` are ranks of the group. A tensor takes
// part in one operation at a time. all_reduce, reduce and broadcast need the same shape on every rank. A tensor that
// gets a result must not have several elements in one place, as expand() and unfold() make them: UsageError.
//
// Errors: UsageError for arguments that cannot be; for ranks that disagree see Group. The ranks compare their
// calls before each operation (TRIREME_CHECK=0: only in shared memory); NCCL's do not.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/comm/engine/reduce_op.h"
#include "trireme/comm/group.h"
#include "trireme/comm/work.h"

namespace trireme {

using Tensors = std::vector<torch::Tensor>;

/// In place: the reduction over all members, the same bits everywhere.
void all_reduce(const torch::Tensor& tensor, ReduceOp op = ReduceOp::sum, const Group& group = Group::world());
Work all_reduce_async(const torch::Tensor& tensor, ReduceOp op = ReduceOp::sum, const Group& group = Group::world());

/// In place on `root`; unchanged elsewhere.
void reduce(const torch::Tensor& tensor, int root, ReduceOp op = ReduceOp::sum, const Group& group = Group::world());
Work reduce_async(const torch::Tensor& tensor, int root, ReduceOp op = ReduceOp::sum,
                  const Group& group = Group::world());

/// In place: root's tensor everywhere.
void broadcast(const torch::Tensor& tensor, int root, const Group& group = Group::world());
Work broadcast_async(const torch::Tensor& tensor, int root, const Group& group = Group::world());

/// outputs[k] becomes rank k's input. The outputs may differ in size; an empty list is filled with tensors like
/// `input`.
void all_gather(Tensors& outputs, const torch::Tensor& input, const Group& group = Group::world());
Work all_gather_async(Tensors& outputs, const torch::Tensor& input, const Group& group = Group::world());
/// All inputs one after the other in one tensor of size() times as many elements.
void all_gather(const torch::Tensor& output, const torch::Tensor& input, const Group& group = Group::world());
Work all_gather_async(const torch::Tensor& output, const torch::Tensor& input, const Group& group = Group::world());

/// As all_gather, on `root` only; the others' outputs stay as they are. The members must agree on the sizes, so either
/// all inputs are alike or every member gives the list.
void gather(Tensors& outputs, const torch::Tensor& input, int root, const Group& group = Group::world());
Work gather_async(Tensors& outputs, const torch::Tensor& input, int root, const Group& group = Group::world());

/// `output` becomes inputs[rank] of `root`. Only root gives inputs, all of the size of `output`.
void scatter(const torch::Tensor& output, const Tensors& inputs, int root, const Group& group = Group::world());
Work scatter_async(const torch::Tensor& output, const Tensors& inputs, int root, const Group& group = Group::world());

/// `output` becomes the reduction of everyone's inputs[rank]; the inputs may differ in size.
void reduce_scatter(const torch::Tensor& output, const Tensors& inputs, ReduceOp op = ReduceOp::sum,
                    const Group& group = Group::world());
Work reduce_scatter_async(const torch::Tensor& output, const Tensors& inputs, ReduceOp op = ReduceOp::sum,
                          const Group& group = Group::world());
/// The inputs one after the other in one tensor of size() times the elements of `output`.
void reduce_scatter(const torch::Tensor& output, const torch::Tensor& input, ReduceOp op = ReduceOp::sum,
                    const Group& group = Group::world());
Work reduce_scatter_async(const torch::Tensor& output, const torch::Tensor& input, ReduceOp op = ReduceOp::sum,
                          const Group& group = Group::world());

/// outputs[k] becomes rank k's inputs[rank]. Sizes may differ; an empty list of outputs is filled with tensors like the
/// inputs.
void all_to_all(Tensors& outputs, const Tensors& inputs, const Group& group = Group::world());
Work all_to_all_async(Tensors& outputs, const Tensors& inputs, const Group& group = Group::world());
/// The same along the first dimension of one tensor, in parts of the given lengths, or in equal parts.
void all_to_all(const torch::Tensor& output, const torch::Tensor& input,
                const std::vector<int64_t>& output_lengths = {}, const std::vector<int64_t>& input_lengths = {},
                const Group& group = Group::world());
Work all_to_all_async(const torch::Tensor& output, const torch::Tensor& input,
                      const std::vector<int64_t>& output_lengths = {}, const std::vector<int64_t>& input_lengths = {},
                      const Group& group = Group::world());

void barrier(const Group& group = Group::world());
Work barrier_async(const Group& group = Group::world());

/// Messages between two ranks arrive in the order sent. send() may wait until the receiver has come.
void send(const torch::Tensor& tensor, int to, const Group& group = Group::world());
void recv(const torch::Tensor& tensor, int from, const Group& group = Group::world());
Work isend(const torch::Tensor& tensor, int to, const Group& group = Group::world());
Work irecv(const torch::Tensor& tensor, int from, const Group& group = Group::world());

struct P2POp {
  enum class Kind { send, recv } kind;
  torch::Tensor tensor;
  int peer;
  Group group = Group::world();
};
/// Starts all of them; what would be a deadlock with send() and recv() in one order is none here.
std::vector<Work> batch_isend_irecv(const std::vector<P2POp>& operations);

/// Byte strings of any length and content, a different length on each rank if you like.
std::vector<std::string> all_gather_object(std::string_view object, const Group& group = Group::world());
std::string broadcast_object(std::string_view object, int root, const Group& group = Group::world());
/// Empty except on `root`.
std::vector<std::string> gather_object(std::string_view object, int root, const Group& group = Group::world());
/// `objects`: one for each member, on `root` only.
std::string scatter_object(const std::vector<std::string>& objects, int root, const Group& group = Group::world());

}  // namespace trireme
