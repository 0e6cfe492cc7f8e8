// Tells norms, the loss scale and checkpoints how the pieces of a sharded model belong together (optim/split_tensors.h).
#pragma once

#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include "trireme/optim/split_tensors.h"
#include "trireme/parallel/sharded/shard_unit.h"
#include "trireme/parallel/sharded/unit_gradients.h"

namespace trireme::parallel {

/// The marks hold for as long as this lives.
class SplitPieces {
 public:
  using Hold = std::function<std::shared_ptr<void>()>;

  /// `units` must outlive this. While the result of `hold` lives, the model's parameters have their values.
  SplitPieces(const std::vector<ShardUnit>& units, Group group, Hold hold);

 private:
  std::shared_ptr<const optim::SplitTensors> how_to_join(const std::shared_ptr<const optim::SplitTensors>& outer) const;
  const UnitPlace& place(const torch::Tensor& piece) const { return places_.at(piece.unsafeGetTensorImpl()); }
  const ShardUnit& unit(const torch::Tensor& piece) const { return units_[place(piece).unit]; }

  const std::vector<ShardUnit>& units_;
  Group group_;
  Hold hold_;
  std::unordered_map<const void*, UnitPlace> places_;  // of pieces
  std::vector<std::shared_ptr<const optim::SplitTensors>> hows_;
};

}  // namespace trireme::parallel
