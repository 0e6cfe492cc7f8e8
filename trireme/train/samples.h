// What is fitted, evaluated or predicted: a dataset by value or by pointer, or a Loader.
//
//   model.fit(data::FashionMnist(), {.batch_size = 64});          // the Model deals out the samples to the ranks
//   data::Loader loader(images, {.batch_size = 64, .order = data::Order::torch}, init_parallel_env());
//   model.fit(loader);                                            // the loader does
#pragma once

#include <concepts>
#include <memory>
#include <utility>

#include "trireme/data/dataset.h"
#include "trireme/data/loader.h"
#include "trireme/train/owned.h"

namespace trireme::train {

/// A small value; copies mean the same. Default constructed it holds nothing.
class Samples {
 public:
  Samples() = default;
  template <typename D>
    requires std::constructible_from<Owned<const data::Dataset>, D>
  Samples(D dataset)  // NOLINT(google-explicit-constructor)
      : dataset_(Owned<const data::Dataset>(std::move(dataset)).pointer()) {}
  /// The caller's, which must outlive this.
  Samples(data::Loader& loader)  // NOLINT(google-explicit-constructor)
      : Samples(std::shared_ptr<data::Loader>(std::shared_ptr<void>(), &loader)) {}
  Samples(data::Loader&& loader)  // NOLINT(google-explicit-constructor)
      : Samples(std::make_shared<data::Loader>(std::move(loader))) {}
  Samples(std::shared_ptr<data::Loader> loader)  // NOLINT(google-explicit-constructor)
      : dataset_(loader ? loader->dataset() : nullptr), loader_(std::move(loader)) {}

  explicit operator bool() const { return dataset_ != nullptr; }
  const std::shared_ptr<const data::Dataset>& dataset() const { return dataset_; }
  /// Null for a dataset alone.
  const std::shared_ptr<data::Loader>& loader() const { return loader_; }

 private:
  std::shared_ptr<const data::Dataset> dataset_;
  std::shared_ptr<data::Loader> loader_;
};

}  // namespace trireme::train
