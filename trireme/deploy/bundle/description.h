// The folder of an exported model, and what stands in its inference.yml.
//
//   inference.onnx   the network, for OpenVINO and every other reader of ONNX
//   inference.pt     the same as TorchScript
//   inference.yml    how to feed it and how to read it: this file is a Description
//
// inference.yml has PaddleClas' sections Global, PreProcess and PostProcess, and three of our own, Input, Output and
// Files:
//
//   Global: {model_name: MobileNetV3_small_x1_0}
//   Input: {name: x, shape: [-1, 3, 224, 224]}
//   Output: {name: out, activation: softmax, class_num: 1000}     (or shapes: [[-1, 21, 224, 224]], see Output)
//   PreProcess: {transform_ops: [ResizeImage: {resize_short: 256}, …]}
//   PostProcess: {Topk: {topk: 5, label_list: [tench, goldfish, …]}}
//   Files: {inference.onnx: {bytes: 102148276, crc32c: 3808858755}, …}
//
// Requires of a Description: labels are as many as classes, or none. Thread rule: a plain value; its transform_ops are
// a config::Node, which belongs to one thread at a time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "trireme/config/node.h"
#include "trireme/core/file_sum.h"
#include "trireme/data/image/pipeline.h"

namespace trireme::bundle {

inline constexpr const char* kDescriptionFile = "inference.yml";
inline constexpr const char* kTorchFile = "inference.pt";
inline constexpr const char* kOnnxFile = "inference.onnx";
/// Begins the name of the folder in which an export makes these files, inside of the one that they are for.
inline constexpr const char* kStagingPrefix = ".export-";

/// The function after the network that turns its outputs into scores.
enum class Activation {
  softmax,  ///< one class a picture: the scores add up to 1
  sigmoid,  ///< any number of classes: each score is a probability of its own
  none,     ///< the scores are as the network gives them
};

/// "softmax"
const char* to_string(Activation activation);

struct Input {
  std::string name = "x";
  int channels = 3;
  int height = 224;
  int width = 224;
  /// Of one picture.
  size_t elements() const {
    return static_cast<size_t>(channels) * static_cast<size_t>(height) * static_cast<size_t>(width);
  }
  bool operator==(const Input&) const = default;
};

struct Output {
  std::string name = "out";
  Activation activation = Activation::softmax;
  int64_t class_num = 0;
  /// Of a network that is not a classifier: the shape of each output, -1 where it follows the images. Then class_num is
  /// 0, and the networks are for a program of your own.
  std::vector<std::vector<int64_t>> shapes = {};
  bool operator==(const Output&) const = default;
};

struct Description {
  std::string model_name = {};
  Input input = {};
  Output output = {};
  config::Node transform_ops = {};  ///< a list as in a configuration, or null: then only tensors go in, no pictures
  std::vector<std::string> labels = {};  ///< name of each class; empty: not known
  int topk = 5;                          ///< how many classes an answer names unless asked otherwise
  /// The networks that were exported with it, by name; those that are absent are not checked.
  std::map<std::string, FileSum> files = {};
};

/// Reads FOLDER/inference.yml. Throws UsageError: no such folder or file, a file that was changed since it was written, or
/// what is wrong in which line of it. A file without a seal (seal()) is read, and a note in the log says so.
Description read(const std::filesystem::path& folder);
/// The same from the text of the file; `source` stands in messages for its path.
Description parse(const std::string& text, const std::string& source);

/// Makes the folder when there is none and writes FOLDER/inference.yml, whole or not at all, with the size and checksum
/// of each network that the folder has; returns what was written. Throws UsageError for a Description that read() would
/// refuse, SystemError when the disk does.
Description write(const std::filesystem::path& folder, Description description);
std::string to_yaml(const Description& description);
/// The text between two comments that hold its CRC-32C: no byte of the result can change unnoticed. Twice, so that a
/// damaged comment is not taken for the text of an older Trireme, which has none.
std::string seal(const std::string& text);

/// Throws UsageError when FOLDER/`name` is not, to the byte, the network that was exported with `description`. A
/// description without Files passes. SystemError: it cannot be read.
void check_network(const std::filesystem::path& folder, const std::string& name, const Description& description);

/// What turns a picture into the network's input: transform_ops, with a ResizeImage to the input's size when no
/// operator gives one. For a network that reads grey pictures they give three channels, of which infer::Predictor makes
/// one. Throws UsageError when there are none, or when their result has another size than the input.
image::Transforms make_transforms(const Description& description);

}  // namespace trireme::bundle
