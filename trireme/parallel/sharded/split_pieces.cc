#include "trireme/parallel/sharded/split_pieces.h"

#include <torch/torch.h>

#include <map>
#include <utility>

#include "trireme/comm/collectives.h"

namespace trireme::parallel {

SplitPieces::SplitPieces(const std::vector<ShardUnit>& units, Group group, Model model)
    : units_(units), group_(std::move(group)), model_(std::move(model)) {
  std::map<std::shared_ptr<const optim::SplitTensors>, std::shared_ptr<const optim::SplitTensors>> hows;
  for (size_t unit = 0; unit < units_.size(); ++unit)
    for (size_t member = 0; member < units_[unit].members().size(); ++member) {
      const torch::Tensor& parameter = units_[unit].members()[member].parameter;
      const torch::Tensor& piece = units_[unit].pieces()[member];
      places_[piece.unsafeGetTensorImpl()] = {unit, member};
      auto& how = hows[optim::split_of(parameter)];
      if (!how) hows_.push_back(how = how_to_join(optim::split_of(parameter)));
      optim::mark_split(parameter, piece, how);
    }
}

// A parameter may be a part already, of a layer that is split over other ranks: then what is done here is followed by
// what is done there.
std::shared_ptr<const optim::SplitTensors> SplitPieces::how_to_join(
    const std::shared_ptr<const optim::SplitTensors>& outer) const {
  const auto parameter = [this](const torch::Tensor& piece) {
    return unit(piece).members()[place(piece).member].parameter;
  };
  auto how = std::make_shared<optim::SplitTensors>();
  how->sum = [group = group_, outer](const torch::Tensor& value) {
    all_reduce(value, ReduceOp::sum, group);
    if (outer) outer->sum(value);
  };
  how->max = [group = group_, outer](const torch::Tensor& value) {
    all_reduce(value, ReduceOp::max, group);
    if (outer) outer->max(value);
  };
  how->join = [=, this](const torch::Tensor& piece, const torch::Tensor& part) {
    const torch::Tensor joined = unit(piece).join(place(piece).member, part);
    return outer ? outer->join(parameter(piece), joined) : joined;
  };
  how->cut = [=, this](const torch::Tensor& piece, const torch::Tensor& whole) {
    return unit(piece).cut(place(piece).member, outer ? outer->cut(parameter(piece), whole) : whole);
  };
  how->sizes = [=](const torch::Tensor& piece) {
    const torch::Tensor one = parameter(optim::piece_of(piece));
    return outer ? outer->sizes(one) : one.sizes().vec();
  };
  // The pieces may have more digits than the parameters in use.
  how->whole = [how = how.get(), outer, settle = model_.settle](const torch::Tensor& one) {
    const torch::Tensor piece = optim::piece_of(one);
    const bool has_values = settle();
    if (!has_values || piece.scalar_type() != one.scalar_type()) return how->join(piece, piece);
    return outer ? outer->whole(one) : one;
  };
  how->put = [put = model_.put](const torch::Tensor& one, const torch::Tensor& part) {
    put(optim::piece_of(one), part);
  };
  if (outer) how->ranks = outer->ranks;
  return how;
}

}  // namespace trireme::parallel
