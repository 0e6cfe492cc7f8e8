// DataLoader.Train and .Eval -> datasets and the way they are read.
//
//   MadeDataset train = make_dataset(*config.train, {.class_num = 1000, .image_shape = {3, 224, 224}});
//   data::Loader loader(train.samples, make_loader_options(*config.train, seed), me, device);
//
// Datasets: ImageNetDataset and MultiScaleDataset (a list), ImageFolder, FashionMnist, Mnist, Synthetic. Errors are
// UsageErrors with file and line of what is wrong.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "trireme/config/data_config.h"
#include "trireme/data/loader.h"

namespace trireme::trainer {

struct DataNeeds {
  int64_t class_num = 0;
  std::array<int64_t, 3> image_shape{};  ///< of Synthetic
  bool labels = true;                    ///< every picture must have one
};

struct MadeDataset {
  std::shared_ptr<const data::Dataset> samples;
  int64_t sample_bytes = 0;  ///< of one image
  bool labelled = true;      ///< all are
};

MadeDataset make_dataset(const config::DataLoader& loader, const DataNeeds& needs);
data::LoaderOptions make_loader_options(const config::DataLoader& loader, uint64_t seed);

}  // namespace trireme::trainer
