#include "trireme/parallel/sharded/unit_gradients.h"

#include <torch/torch.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "trireme/comm/collectives.h"
#include "trireme/comm/members.h"
#include "trireme/core/error.h"

namespace trireme::parallel {
namespace {

constexpr size_t kUnderWay = 2;

bool is_complete(const ShardUnit& unit) {
  for (size_t i = 0; i < unit.members().size(); ++i)
    if (unit.members()[i].parameter.requires_grad() && !unit.has_gradient(i)) return false;
  return true;
}

bool is_trained(const ShardUnit& unit) {
  return std::any_of(unit.members().begin(), unit.members().end(),
                     [](const UnitMember& member) { return member.parameter.requires_grad(); });
}

}  // namespace

// Kept parameters are gathered only after a step: a rank that has not stepped begins a backward while the others gather.
// They must meet, so that they can tell each other.
UnitGradients::UnitGradients(std::vector<ShardUnit>& units, const UnitGroups& groups, bool keep_parameters,
                             ShardFailure& failure)
    : units_(units),
      group_(groups.reduce),
      failure_(failure),
      agreement_(keep_parameters ? groups.gather : groups.reduce),
      reduce_order_(units.size()) {
  std::iota(reduce_order_.rbegin(), reduce_order_.rend(), 0);  // backward meets the last layers first
}

void UnitGradients::watch(const std::function<void(UnitPlace)>& on_gradient) {
  watches_.clear();
  places_.clear();
  for (size_t unit = 0; unit < units_.size(); ++unit)
    for (size_t member = 0; member < units_[unit].members().size(); ++member) {
      const torch::Tensor& parameter = units_[unit].members()[member].parameter;
      const UnitPlace place{unit, member};
      places_.push_back(place);
      units_[unit].pieces()[member].set_requires_grad(parameter.requires_grad());
      if (!parameter.requires_grad()) continue;
      watches_.push_back(std::make_unique<GradientWatch>(torch::autograd::impl::grad_accumulator(parameter),
                                                         [on_gradient, place] { on_gradient(place); }));
    }
}

void UnitGradients::begin_backward(bool written, uint64_t model) {
  if (broken_)
    throw PeerError(
        "{}: an earlier backward() has failed, so the ranks' gradients can no longer be averaged; start again "
        "from a checkpoint, with a new world",
        own_place(group_));
  // A piece may be empty on some ranks, and a parameter may have been frozen on one alone: all must know.
  agreement_.require_same({.complaint = complaint_of_left_overs(written),
                           .action = "run backward()",
                           .advice = "every rank must make the same calls",
                           .stepped = written,
                           .model = model});
  in_backward_ = true;
  next_to_reduce_ = 0;
  under_way_.clear();
}

// Averages that no optimizer has used, or that were not cleared, would be added to the next ones without a word.
std::string UnitGradients::complaint_of_left_overs(bool written) const {
  const auto left =
      std::find_if(units_.begin(), units_.end(), [](const ShardUnit& unit) { return unit.first_with_gradient() >= 0; });
  if (left == units_.end()) return "";
  const std::string& name = left->members()[static_cast<size_t>(left->first_with_gradient())].name;
  if (!written)
    return fmt::format(
        "the gradients of the last backward were used by no optimizer (parameter {} has one still): make it from "
        "model.parameters(), not from model->parameters(), after the model was wrapped. To add up several backwards, "
        "use no_sync() for all but the last",
        name);
  return fmt::format(
      "the gradients of the last backward were not cleared (parameter {} has one still): call zero_grad() of the "
      "optimizer; model->zero_grad() does not know the split gradients. A parameter that no optimizer steps needs "
      "requires_grad_(false)",
      name);
}

void UnitGradients::take(const UnitPlace& place) {
  ShardUnit& unit = units_[place.unit];
  const torch::Tensor& gradient = unit.members()[place.member].parameter.grad();
  if (gradient.requires_grad())
    failure_.fail(
        "backward(create_graph = true): averaged gradients have no graph; use torch::autograd::grad() for a gradient "
        "that goes into the loss, or no_sync()");
  if (gradient.is_sparse())
    failure_.fail(
        fmt::format("parameter {} has a sparse gradient; ShardedDataParallel averages dense ones: make the embedding "
                    "with sparse(false)",
                    name_of(place)));
  if (unit.reducing())
    failure_.fail(
        fmt::format("parameter {} got another gradient in the same backward after its unit had been reduced; run the "
                    "backwards one by one under no_sync()",
                    name_of(place)));
  unit.take_gradient(place.member);
  reduce_what_is_complete();
}

void UnitGradients::reduce_what_is_complete() {
  for (; next_to_reduce_ < reduce_order_.size(); ++next_to_reduce_) {
    ShardUnit& unit = units_[reduce_order_[next_to_reduce_]];
    if (!is_trained(unit)) continue;
    if (!is_complete(unit)) return;
    start_reduce(reduce_order_[next_to_reduce_]);
  }
}

// The buffers of units under way are memory beside the model: no more than a few at a time.
void UnitGradients::start_reduce(size_t unit) {
  units_[unit].start_reduce();
  under_way_.push_back(unit);
  for (; under_way_.size() > kUnderWay; under_way_.pop_front()) units_[under_way_.front()].free_buffer();
}

void UnitGradients::end_backward() {
  take_local_gradients();
  const std::string mine = seen_here();
  for (; next_to_reduce_ < reduce_order_.size(); ++next_to_reduce_)
    if (const size_t unit = reduce_order_[next_to_reduce_]; is_trained(units_[unit])) start_reduce(unit);
  finish_units(all_gather_object(mine, group_));
  in_backward_ = false;
}

// What backwards under no_sync() have left in parameters that this one did not reach.
void UnitGradients::take_local_gradients() {
  for (const UnitPlace& place : places_)
    if (units_[place.unit].members()[place.member].parameter.grad().defined() && !units_[place.unit].reducing())
      units_[place.unit].take_gradient(place.member);
}

// One character for each parameter: whether it has got a gradient.
std::string UnitGradients::seen_here() const {
  std::string seen;
  for (const UnitPlace& place : places_) seen += units_[place.unit].has_gradient(place.member) ? '1' : '0';
  return seen;
}

void UnitGradients::finish_units(const std::vector<std::string>& all) {
  const auto seen = [&](size_t rank, size_t place) { return all[rank].at(place) == '1'; };
  size_t first = 0;  // the place of the unit's first member
  std::vector<std::pair<size_t, bool>> complete;
  for (size_t i = 0; i < units_.size(); ++i) {
    std::vector<bool> used;
    bool everywhere = true;
    for (size_t member = 0; member < units_[i].members().size(); ++member) {
      bool anywhere = false;
      for (size_t rank = 0; rank < all.size(); ++rank) {
        anywhere = anywhere || seen(rank, first + member);
        everywhere = everywhere && seen(rank, first + member);
      }
      used.push_back(anywhere);
    }
    if (units_[i].reducing()) units_[i].finish_reduce(used);
    complete.emplace_back(i, everywhere);
    first += units_[i].members().size();
  }
  // Units that some rank could not complete go last, as the others would wait for them.
  reduce_order_.clear();
  for (const bool wanted : {true, false})
    for (auto unit = complete.rbegin(); unit != complete.rend(); ++unit)
      if (unit->second == wanted) reduce_order_.push_back(unit->first);
}

void UnitGradients::give_up() noexcept {
  in_backward_ = false;
  broken_ = true;
  failure_.abort(fmt::format("an exception has ended the backward() of {}", own_place(group_)));
}

}  // namespace trireme::parallel
