// Numbers in a recorded graph that follow the images: x.view({x.size(0), -1}) has the number of images of one run in
// it. Each is worked out from how it differs between the recordings, and becomes an expression of sizes.
//
//   recorded     view(x, [2, 12]) for 2 images, view(x, [3, 12]) for 3
//   becomes      view(x, [size(x, 0), 12])
//
// An expression gives the recorded number in every recording; a number that stays is the same in all of them. So, for
// each of these sizes, the graph runs the operators that the network itself has run, on tensors of the same shapes:
// running it cannot end the process where the network did not. (libtorch's kernels do not all check their arguments: an
// LSTM reads beyond a state that was made for fewer images.)
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trireme/deploy/export/recording.h"

namespace trireme::deploy {

using Shape = std::vector<int64_t>;
/// Of the values of the first recording, by Value::unique(): the shape in each recording.
using RecordedShapes = std::map<size_t, std::vector<Shape>>;

/// Requires recordings of the same operators (require_same_operators), before free_sizes().
RecordedShapes recorded_shapes(std::span<const Recording> recordings);

/// Changes the graph of the first recording. nullopt: every number is found; else which could not be, as a sentence.
/// `hold_out_last`: nothing is worked out from the last recording, but what was worked out must be right there, too.
std::optional<std::string> free_sizes(std::span<const Recording> recordings, const RecordedShapes& shapes,
                                      bool hold_out_last = false);

/// The shape in the run that was recorded; empty where it is not a tensor.
Shape shape_of(const torch::jit::Value* value);

}  // namespace trireme::deploy
