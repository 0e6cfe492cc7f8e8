#include "trireme/parallel/pipeline/ties.h"

#include <torch/torch.h>

#include <algorithm>

#include "trireme/comm/collectives.h"
#include "trireme/comm/members.h"
#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/parallel/parameter_check.h"
#include "trireme/parallel/same_model.h"

namespace trireme::parallel {
namespace {

using torch::Tensor;

std::string layer_of(const std::string& parameter) {
  return parameter.substr(0, parameter.find('.'));
}

// A norm over the ranks of a pipeline must count a tied parameter once: that of the first rank.
std::shared_ptr<const optim::SplitTensors> uncounted(const Tensor& parameter) {
  const auto split = optim::split_of(parameter);
  auto how = std::make_shared<optim::SplitTensors>();
  if (split) {
    *how = *split;
  } else {
    const auto same = [](const Tensor&, const Tensor& tensor) { return tensor; };
    how->max = [](const Tensor&) {};
    how->join = how->cut = same;
    how->put = [](const Tensor& tensor, const Tensor& values) {
      const torch::NoGradGuard no_grad;
      tensor.copy_(values);
    };
    how->sizes = [](const Tensor& tensor) { return tensor.sizes().vec(); };
    how->whole = [](const Tensor& tensor) { return tensor.detach(); };
  }
  how->sum = [](const Tensor& value) { value.zero_(); };
  return how;
}

void add_gradient(const Tensor& to, const Tensor& from) {
  if (!from.grad().defined()) return;
  if (to.grad().defined())
    to.mutable_grad() = to.grad() + from.grad();
  else
    to.mutable_grad() = from.grad();
  from.mutable_grad() = Tensor();
}

}  // namespace

Ties::Ties(const StagePlan& plan, const torch::nn::Module& here, const Group& pipe) : ties_(declared(plan)) {
  const torch::NoGradGuard no_grad;
  const auto parameters = here.named_parameters();
  std::vector<std::string> mine;
  for (const Tie& tie : ties_)
    for (const std::string& member : tie.members)
      if (plan.rank_of(plan.find(layer_of(member))) == pipe.rank()) {
        const Tensor* found = parameters.find(member);
        mine.push_back(fmt::format("{}\t{}\t{}", tie.owner, member, found ? describe_tensor(*found) : "missing"));
      }
  if (ties_.empty()) return;
  check_shapes(mine, pipe);
  for (Tie& tie : ties_) join(tie, plan, parameters, pipe);
}

std::vector<Ties::Tie> Ties::declared(const StagePlan& plan) const {
  std::vector<std::pair<std::string, std::string>> pairs;  // owner and member, in the order of the layers
  std::vector<Tie> ties;
  for (const PipelineLayer& layer : plan.layers)
    for (const auto& [parameter, owner] : layer.options().tied)
      pairs.emplace_back(owner, layer.name() + "." + parameter);
  for (const auto& [owner, member] : pairs) {
    auto tie = std::find_if(ties.begin(), ties.end(), [&owner = owner](const Tie& one) { return one.owner == owner; });
    if (tie == ties.end()) tie = ties.insert(ties.end(), Tie{.owner = owner, .members = {owner}});
    tie->members.push_back(member);
  }
  for (Tie& tie : ties) {
    const auto place = [&](const std::string& member) { return plan.find(layer_of(member)); };
    std::stable_sort(tie.members.begin(), tie.members.end(),
                     [&](const std::string& a, const std::string& b) { return place(a) < place(b); });
    for (const std::string& member : tie.members) tie.ranks.push_back(plan.rank_of(place(member)));
    std::sort(tie.ranks.begin(), tie.ranks.end());
    tie.ranks.erase(std::unique(tie.ranks.begin(), tie.ranks.end()), tie.ranks.end());
  }
  return ties;
}

// All ranks see the members of all, and so the same difference.
void Ties::check_shapes(const std::vector<std::string>& mine, const Group& pipe) const {
  std::map<std::string, std::string> shapes;
  for (const std::string& lines : all_gather_object(trireme::join(mine, "\n"), pipe))
    for (const std::string& line : split(lines, '\n')) {
      const std::vector<std::string> fields = split(line, '\t');
      if (fields.size() == 3) shapes[fields[1]] = fields[2];
    }
  for (const Tie& tie : ties_)
    for (const std::string& member : tie.members) {
      if (shapes[member] == "missing")
        throw UsageError("{}: Pipeline: there is no parameter '{}' to tie; layer '{}' has none of that name",
                         own_place(pipe), member, layer_of(member));
      if (shapes[member] != shapes[tie.owner])
        throw UsageError("{}: Pipeline: {} is tied to {}, but one is {} and the other {}; tie parameters of one shape",
                         own_place(pipe), member, tie.owner, shapes[member], shapes[tie.owner]);
    }
}

void Ties::join(Tie& tie, const StagePlan& plan, const torch::OrderedDict<std::string, Tensor>& parameters,
                const Group& pipe) {
  for (const std::string& member : tie.members) {
    saved_names_[member] = tie.owner;
    const Tensor* found = parameters.find(member);
    if (!found) continue;
    if (!tie.keeper.defined())
      tie.keeper = *found;
    else if (!found->is_same(tie.keeper))
      tie.copies.push_back(*found);
  }
  if (!tie.keeper.defined()) return;
  if (const Tensor* owner = parameters.find(tie.owner)) tie.keeper.copy_(*owner);
  for (const Tensor& copy : tie.copies) copy.set_data(tie.keeper.data());
  if (tie.ranks.size() == 1) return;
  tie.group = pipe.new_group(tie.ranks);
  const int owner = plan.rank_of(plan.find(layer_of(tie.owner)));
  const auto root = std::find(tie.ranks.begin(), tie.ranks.end(), owner) - tie.ranks.begin();
  broadcast(tie.keeper.detach(), static_cast<int>(root), tie.group);
  if (tie.group.rank() == 0) return;
  uncounted_.push_back(uncounted(tie.keeper));
  optim::mark_split(tie.keeper, tie.keeper, uncounted_.back());
}

bool Ties::is_copy(const Tensor& parameter) const {
  for (const Tie& tie : ties_)
    for (const Tensor& copy : tie.copies)
      if (copy.is_same(parameter)) return true;
  return false;
}

std::vector<Tensor> Ties::keepers() const {
  std::vector<Tensor> all;
  for (const Tie& tie : ties_)
    if (tie.keeper.defined()) all.push_back(tie.keeper);
  return all;
}

void Ties::require_one_on_each_rank() const {
  for (const Tie& tie : ties_)
    if (tie.members.size() > tie.ranks.size())
      throw UsageError(
          "Pipeline: {} tied parameters ({}) lie on {} pipe rank{}; .shard needs each on a rank of its own: cut the "
          "layers in another way (.begins), or drop .shard",
          tie.members.size(), trireme::join(tie.members, ", "), tie.ranks.size(), tie.ranks.size() == 1 ? "" : "s");
}

bool Ties::are_joined() const {
  for (const Tie& tie : ties_)
    for (const Tensor& copy : tie.copies)
      if (copy.const_data_ptr() != tie.keeper.const_data_ptr()) return false;
  return true;
}

void Ties::require_equal(const Group& pipe) const {
  if (ties_.empty()) return;
  std::vector<std::string> mine;
  for (const Tie& tie : ties_)
    mine.push_back(tie.keeper.defined() && tie.group.is_member() ? fmt::format("{:x}", checksum_of(tie.keeper))
                                                                 : "elsewhere");
  std::vector<std::vector<std::string>> sums;
  for (const std::string& text : all_gather_object(trireme::join(mine, "\n"), pipe)) sums.push_back(split(text, '\n'));
  for (size_t i = 0; i < ties_.size(); ++i) {
    const auto first = static_cast<size_t>(ties_[i].ranks[0]);
    for (const int rank : ties_[i].ranks)
      if (sums[static_cast<size_t>(rank)].at(i) != sums[first].at(i))
        throw UsageError(
            "Pipeline: the tied parameter {} differs between {} and {}; load the same into all of "
            "its copies, and give every rank's optimizer the same options",
            ties_[i].owner, place_of(pipe, rank), place_of(pipe, static_cast<int>(first)));
  }
}

void Ties::abort(const std::string& reason) const {
  for (const Tie& tie : ties_)
    if (tie.group.is_member()) tie.group.abort(reason);
}

const std::string& Ties::saved_name(const std::string& name) const {
  const auto found = saved_names_.find(name);
  return found == saved_names_.end() ? name : found->second;
}

bool Ties::is_here(const std::string& saved_name) const {
  return std::any_of(ties_.begin(), ties_.end(),
                     [&](const Tie& tie) { return tie.owner == saved_name && tie.keeper.defined(); });
}

// A gradient that is the sum already will be summed again: each rank takes its share of it.
void Ties::begin_batch() {
  const torch::NoGradGuard no_grad;
  for (const Tie& tie : ties_) {
    if (local_ || !tie.group.is_member()) continue;
    if (const Tensor stepped = optim::piece_of(tie.keeper); stepped.grad().defined())
      stepped.mutable_grad().div_(tie.group.size());
  }
}

void Ties::end_batch(bool over_ranks) {
  const torch::NoGradGuard no_grad;
  for (const Tie& tie : ties_) {
    if (!tie.keeper.defined()) continue;
    for (const Tensor& copy : tie.copies) add_gradient(tie.keeper, copy);
    if (!over_ranks || !tie.group.is_member()) continue;
    const Tensor stepped = optim::piece_of(tie.keeper);
    if (!stepped.grad().defined()) stepped.mutable_grad() = torch::zeros_like(stepped);
    all_reduce(stepped.grad(), ReduceOp::sum, tie.group);
  }
  local_ = !over_ranks;
}

}  // namespace trireme::parallel
