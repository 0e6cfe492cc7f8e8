// A trained network -> a folder for inference:
//
//   inference.pt     TorchScript, for libtorch and for Python's torch.jit.load
//   inference.onnx   the same for OpenVINO, ONNX Runtime and others; opset 14
//   inference.yml    what goes in and what comes out (bundle/description.h)
//
//   deploy::export_model(net, {.model_name = "LeNet", .input = {.channels = 1, .height = 28, .width = 28}},
//   "inference");
//
// The files compute what the network computes in evaluation, with output.activation behind it: batch normalisation is
// folded into the convolutions, parallel branches become one convolution, dropout is gone. They take any number of
// images of the stated size; with Options::any_size of other sizes, too. Images go in and scores come out in float32,
// also where the network computes in another type. The network itself is left as it was, so that training may go on.
// Before they take their places, inference.pt and, with Options::open_onnx, inference.onnx are compared with the
// network on one, two and three random images (compare.h), with any_size also on images of three other sizes. Sizes in
// the graph are worked out from the network's runs on two of these, and must be right for its run on the third; else the
// files take images of the stated size only. So inference.pt runs only operators that the network itself has just run in
// this process, on tensors of the same shapes (sizes.h): the comparison cannot crash a program in which the network
// works. It is not done in a child process: a fork of a program with threads, which libtorch has, may use neither its
// allocator nor its locks, and there is no other program at hand to execute: `trireme` need not be installed where a
// program that was linked with Trireme runs.
// Thread rule: no other thread uses the network.
//
// A network whose output is not a row of scores for each image, or that has several outputs, is exported with
// .output = {.activation = bundle::Activation::none}: the files are for your own code then, not for `trireme infer`.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "trireme/deploy/bundle/description.h"
#include "trireme/deploy/export/compare.h"
#include "trireme/deploy/export/network.h"

namespace trireme::deploy {

/// What computes the inference.onnx in a folder, of which no inference.yml may be there yet.
using OpenOnnx = std::function<Scorer(const std::filesystem::path& folder, const bundle::Description& description)>;

struct Options {
  bool onnx = true;  ///< false: no inference.onnx, for operators that lower.h does not know
  /// Also runs the network on larger images. Where it takes them, so do the files; else the log says why not.
  bool any_size = false;
  double tolerance = 1e-4;  ///< of the comparisons, times the range of the scores before the activation
  OpenOnnx open_onnx = {};  ///< none: inference.onnx is written without having been run, and the log warns of it
  std::string no_engine = "no engine was passed (Options::open_onnx)";  ///< for that warning: why there is none
};

/// Replaces the three files in `folder`, which is made when there is none: all of them or, when anything fails, none.
/// A process killed while they change places leaves a folder without inference.yml (staging.h).
/// A `class_num` of 0 becomes the network's. Returns the description as written.
/// UsageError: the network does not take such images, gives another number of classes, has an operator without equal in
/// ONNX, depends on the values or the number of the images, or weights that are not finite. SystemError: the disk
/// refused.
bundle::Description export_model(const Network& net, bundle::Description description,
                                 const std::filesystem::path& folder, const Options& options = {});

}  // namespace trireme::deploy
