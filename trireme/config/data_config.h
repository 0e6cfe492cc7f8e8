// The sections DataLoader.Train, Eval and UnLabelTrain: what is read, in which batches, by how many threads.
//
// Operators keep their parameters as nodes: their makers read the keys they know, and errors name file and line.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/config/node.h"

namespace trireme::config {

struct Dataset {
  std::string name;            ///< ImageNetDataset, MultiScaleDataset, FashionMnist, …
  std::string image_root;      ///< folder
  std::string cls_label_path;  ///< list file: `path label` a line
  std::string delimiter = " ";
  bool relabel = false;       ///< labels become 0, 1, 2 … in their order
  std::string mode;           ///< of sets that come in parts: train or test
  double bad_share = 0.01;    ///< of the pictures: more that cannot be read are an error. Trireme's own key
  int64_t bad_at_least = 10;  ///< so many are always allowed. Trireme's own key
  std::string packed_file;    ///< read instead of the pictures' own files. Trireme's own key
  std::vector<NamedNode> transform_ops;
  std::vector<NamedNode> batch_transform_ops;
  Node node;  ///< for keys of one kind of dataset
};

struct Sampler {
  std::string name = "DistributedBatchSampler";
  int64_t batch_size = 0;  ///< per rank; of MultiScaleSampler: first_bs
  bool shuffle = false;
  bool drop_last = false;

  // Of MultiScaleSampler only. Each scale is {width, height}; first_bs is the batch of the first.
  struct Scale {
    int64_t width = 0;
    int64_t height = 0;
    bool operator==(const Scale&) const = default;
  };
  std::vector<Scale> scales;
  int64_t first_bs = 0;
  int64_t divided_factor = 32;
  bool is_training = true;

  Node node;
};

struct Loader {
  int64_t num_workers = 4;
};

struct DataLoader {
  Dataset dataset;
  Sampler sampler;
  Loader loader;
};

DataLoader read_data_loader(const Node& section);

}  // namespace trireme::config
