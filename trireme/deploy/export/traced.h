// A network's computation as a graph of aten operators, with its weights beside it: what all of this module works on.
//
//   Traced traced = trace(net, {.channels = 3, .height = 224, .width = 224});
//   fold_batch_norms(traced);                                           // fold.h
//   torch::jit::Module module = to_torchscript(traced);                 // torchscript.h
//
// Words: the graph's first input is the images, in float32; every other input is a weight, which has a name (that of the
// network's parameter or buffer) and a value. The operators are functional: none writes into its input. A dimension is
// open when it follows the number of images or, with any_size, their height and width.
#pragma once

#include <torch/csrc/jit/ir/ir.h>
#include <torch/types.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "trireme/deploy/bundle/description.h"
#include "trireme/deploy/export/recording.h"
#include "trireme/deploy/export/sizes.h"

namespace trireme::deploy {

struct Traced {
  std::shared_ptr<torch::jit::Graph> graph = {};
  std::map<const torch::jit::Value*, Weight> weights = {};  ///< values contiguous and on the CPU
  at::ScalarType type = torch::kFloat;                      ///< in which the network computes
  bool any_size = false;                                    ///< images of other heights and widths are right, too
  RecordedShapes shapes = {};
  /// What was recorded, outputs in float32 where they are floating: 2, 3 and 1 images; with any_size, three more sizes,
  /// of which the last was held out (sizes.h).
  std::vector<Recording> recordings = {};

  torch::jit::Value* images() const { return graph->inputs()[0]; }
  at::ArrayRef<torch::jit::Value*> outputs() const { return graph->outputs(); }
  /// nullptr: it is computed.
  const Weight* weight_of(const torch::jit::Value* value) const;
  /// The dimensions that follow the images.
  std::vector<size_t> open_dims(const torch::jit::Value* value) const;
  /// Whether this dimension is the number of images, in every recording.
  bool is_batch(const torch::jit::Value* value, size_t dim) const;
  /// A new input of the graph.
  torch::jit::Value* add_weight(std::string name, const torch::Tensor& value);
  /// Puts `by` in the place of a value of the same shape, for all that read it.
  void replace(torch::jit::Value* value, torch::jit::Value* by);
  /// All nodes of a kind, in the order of computation.
  std::vector<torch::jit::Node*> nodes_of(c10::Symbol kind) const;
  /// Removes what does not lead to an output, weights too, and gives weights of the same name different ones.
  void remove_unused();
};

inline constexpr int64_t kTracedBatch = 2;

/// The same at every call; the caller's random numbers are left alone.
torch::Tensor random_images(const bundle::Input& input, int64_t batch);

/// Runs the network on random images in the mode in which it is; nothing of it changes. UsageError when it cannot be
/// traced: it does not take such images or another number of them, does not return tensors, or takes other operators for
/// another number of images. With `any_size` it is also run on larger images; where it does not take those, or has the
/// size of its images in it in a way that cannot be worked out, the result says any_size = false.
Traced trace(const Network& net, const bundle::Input& input, bool any_size = false);

/// Of a constant, or of a list of constants.
std::vector<int64_t> whole_numbers(const torch::jit::Value* value);
/// {2} for two dimensions -> {2, 2}, as torch reads strides and the like.
std::vector<int64_t> for_dimensions(std::vector<int64_t> numbers, size_t dimensions);

}  // namespace trireme::deploy
