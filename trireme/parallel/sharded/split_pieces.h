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
  struct Model {
    /// What was written into the parameters goes into the pieces. Then, true: the parameters have their values on every
    /// rank; false: they may have no memory.
    std::function<bool()> settle;
    /// Writes values into a piece; the parameters' are old then.
    std::function<void(const torch::Tensor& piece, const torch::Tensor& values)> put;
  };

  /// `units` must outlive this.
  SplitPieces(const std::vector<ShardUnit>& units, Group group, Model model);

 private:
  std::shared_ptr<const optim::SplitTensors> how_to_join(const std::shared_ptr<const optim::SplitTensors>& outer) const;
  const UnitPlace& place(const torch::Tensor& piece) const { return places_.at(piece.unsafeGetTensorImpl()); }
  const ShardUnit& unit(const torch::Tensor& piece) const { return units_[place(piece).unit]; }

  const std::vector<ShardUnit>& units_;
  Group group_;
  Model model_;
  std::unordered_map<const void*, UnitPlace> places_;  // of pieces
  std::vector<std::shared_ptr<const optim::SplitTensors>> hows_;
};

}  // namespace trireme::parallel
