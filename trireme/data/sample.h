// One sample of a dataset, or a batch of samples: tensors in order, each with a name.
//
//   data::Sample pair{image, label};                                  // their names are "data" and "target"
//   data::Sample scene{{"image", image}, {"boxes", boxes}, {"mask", mask}};
//   scene["mask"]                                                     // by name
//   auto& [x, y] = scene;                                             // the first two: image and boxes
#pragma once

#include <torch/types.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

namespace trireme::data {

struct NamedTensor {
  std::string name;
  torch::Tensor tensor;
};

struct Sample {
  Sample() = default;
  Sample(torch::Tensor data_, torch::Tensor target_) : data(std::move(data_)), target(std::move(target_)) {}
  /// Throws UsageError for an empty list, an empty name and a name that is there twice.
  Sample(std::initializer_list<NamedTensor> tensors) : Sample(std::vector<NamedTensor>(tensors)) {}
  explicit Sample(std::vector<NamedTensor> tensors);

  torch::Tensor data;    ///< the first tensor, whatever its name
  torch::Tensor target;  ///< the second; undefined in a sample of one
  int64_t index = -1;    ///< its number in the dataset, for messages; -1: unknown

  size_t size() const { return names_.size(); }
  const std::vector<std::string>& names() const { return names_; }
  torch::Tensor& tensor(size_t i) { return i == 0 ? data : i == 1 ? target : more_.at(i - 2); }
  const torch::Tensor& tensor(size_t i) const { return i == 0 ? data : i == 1 ? target : more_.at(i - 2); }

  bool contains(std::string_view name) const { return find(name) < size(); }
  /// Where the tensor of that name stands, and the tensor. They throw UsageError with the names that are there.
  size_t place(std::string_view name) const;
  torch::Tensor& operator[](std::string_view name) { return tensor(place(name)); }
  const torch::Tensor& operator[](std::string_view name) const { return tensor(place(name)); }

  /// Puts one more behind the others. Throws UsageError for a name that is there already.
  void add(std::string name, torch::Tensor tensor);

  /// The same names and index, each defined tensor as `f` makes it.
  template <typename F>
  Sample map(const F& f) const {
    Sample result = *this;
    for (size_t i = 0; i < size(); ++i)
      if (tensor(i).defined()) result.tensor(i) = f(tensor(i));
    return result;
  }

  /// For `auto& [x, y]`, with std::tuple_size below.
  template <size_t I>
  torch::Tensor& get() & {
    return tensor(I);
  }
  template <size_t I>
  const torch::Tensor& get() const& {
    return tensor(I);
  }
  template <size_t I>
  torch::Tensor&& get() && {
    return std::move(tensor(I));
  }

 private:
  size_t find(std::string_view name) const;  // size(): not there

  std::vector<std::string> names_ = {"data", "target"};
  std::vector<torch::Tensor> more_;  // from the third on
};

/// Samples stacked along a new first dimension, or put together by a collate function (collate.h).
using Batch = Sample;

/// Each tensor stacked. No samples: a batch of no rows. Throws UsageError when the samples have different names, or
/// tensors of different shapes: with the tensor, both shapes and both samples.
Batch stack(const std::vector<Sample>& samples);

/// One row of a batch.
Sample row(const Batch& batch, int64_t i);

/// For collate functions: throws the UsageError of stack() unless all samples have the same names in the same order.
void check_names(const std::vector<Sample>& samples);
/// For collate functions: the tensors at one place, stacked as stack() does.
torch::Tensor stack_at(size_t place, const std::vector<Sample>& samples);

/// "[3, 224, 224]".
std::string shape_text(const torch::Tensor& tensor);

}  // namespace trireme::data

template <>
struct std::tuple_size<trireme::data::Sample> : std::integral_constant<size_t, 2> {};
template <size_t I>
struct std::tuple_element<I, trireme::data::Sample> {
  using type = torch::Tensor;
};
