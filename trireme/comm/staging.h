// Tensors as engines want them: dense, on the CPU, several in one buffer; and the way back.
//
//   const Staged staged(tensor);                    // the tensor itself where it is dense and on the CPU already
//   engine.all_reduce(staged.dense().data_ptr(), …);
//   staged.write_back();
#pragma once

#include <torch/types.h>

#include <vector>

namespace trireme::comm {

/// UsageError for sparse tensors and other layouts.
void check_dense(const at::Tensor& tensor);
/// UsageError for a tensor whose elements share memory (expand, unfold, as_strided): a result has no place there.
void check_writable(const at::Tensor& tensor);
/// UsageError when several of these results share memory.
void check_apart(const std::vector<at::Tensor>& results);
/// UsageError unless both have the same type and number of elements. `what` names the first.
void check_same_size(const char* what, const at::Tensor& a, const at::Tensor& b);

/// A dense CPU image of a tensor for the time of an operation.
/// The input, or a copy of it where it shares memory with the output, which other ranks' parts arrive in meanwhile.
at::Tensor apart_from(const at::Tensor& output, const at::Tensor& input);

class Staged {
 public:
  explicit Staged(const at::Tensor& tensor);
  const at::Tensor& dense() const { return dense_; }
  void write_back() const;

 private:
  at::Tensor tensor_;
  at::Tensor dense_;
};

/// Several tensors of one type one after the other in one dense CPU buffer.
class Joined {
 public:
  explicit Joined(const std::vector<at::Tensor>& parts);
  const at::Tensor& buffer() const { return buffer_; }
  void pack() const;
  void unpack() const;
  /// The sizes of the parts, times `factor`.
  std::vector<size_t> counts(size_t factor = 1) const;

 private:
  template <typename F>
  void each(F f) const;

  std::vector<at::Tensor> parts_;
  at::Tensor buffer_;
};

/// What an engine counts for each rank when a tensor is cut along its first dimension, in equal parts or in the given
/// lengths. `which` names the tensor in the UsageError.
std::vector<size_t> row_counts(const at::Tensor& tensor, const std::vector<int64_t>& lengths, int ranks,
                               const char* which);

}  // namespace trireme::comm
