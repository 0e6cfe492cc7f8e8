// A network as a list of layers that run one after the other, each made when it is needed: a stage of a Pipeline makes its
// own only.
//
//   const std::vector<models::NetworkLayer> layers = models::resnet_layers(18, {.class_num = 10});
//   Pipeline pipe({layers.begin(), layers.end()}, mesh["pipe"], {.micro_batches = 8, .loss = cross_entropy});
//
// The layers have the names that the whole network gives its parameters, so checkpoints of both fit each other.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "trireme/nn/tensor_module.h"

namespace trireme::models {

struct NetworkLayer {
  std::string name;  ///< without dots
  std::function<std::shared_ptr<nn::TensorModule>()> make;
  /// Parameters of this layer that are those of another: {"tokens.weight", "embedding.tokens.weight"}. Both begin with the
  /// same values; the caller keeps them so, as Pipeline does.
  std::map<std::string, std::string> tied = {};
};

}  // namespace trireme::models
