// Pictures from files, each as a pipeline of transforms makes it.
//
//   data::ImageDataset train(data::read_image_list("train_list.txt"),
//                            image::Transforms({image::DecodeImage{}, image::RandCropImage{}, image::RandFlipImage{},
//                                               image::NormalizeImage{}}),
//                            {.root = "ILSVRC2012"});
//   data::Loader loader(train, {.batch_size = 64, .shuffle = true, .workers = 4}, world);
//
// Only JPEG and PNG are read. A list with pictures of other formats (.bmp, .gif, .tif, .webp) is refused.
// A picture that cannot be read or decoded is logged with its path, counted, and replaced by another that its draw
// decides, or left out where the pick says so (an evaluation's). When there are more than a stated share of them, the
// next batch is a UsageError with their list. Each process counts what it has met: Model and the trainer add up.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>

#include "trireme/data/dataset.h"
#include "trireme/data/image/image_list.h"
#include "trireme/data/image/pipeline.h"

namespace trireme::data {

struct ImageDatasetOptions {
  std::filesystem::path root = {};    ///< what the list's paths are relative to
  std::filesystem::path packed = {};  ///< of pack_images(): read instead of the pictures' own files
  double bad_share = 0.01;            ///< of the dataset: more bad pictures than this are an error
  int64_t bad_at_least = 10;          ///< so many are always allowed, in small datasets too
};

/// A small value: copies share list and counts. Samples are float, channels x height x width, and an int64 label
/// (ImageList::kUnlabelled where there is none).
class ImageDataset : public RandomDataset {
 public:
  using RandomDataset::batch;
  using RandomDataset::get;
  /// Throws UsageError when the list is empty or has pictures of a format that is not read, root is not a folder, an
  /// option is out of range, or `packed` was not made of this list or is damaged.
  ImageDataset(ImageList list, image::Transforms transforms, const ImageDatasetOptions& options = {});

  int64_t size() const override;
  Sample get(int64_t index, uint64_t draw) const override;
  /// With an image size, through the transforms of that size (multi-scale training).
  Batch batch(const Pick& pick) const override;

  const ImageList& list() const;
  /// Their numbers are those of the list.
  BadSamples bad() const override;

 private:
  class Reader;
  std::shared_ptr<Reader> reader_;
};

}  // namespace trireme::data
