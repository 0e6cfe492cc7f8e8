#include "trireme/optim/split_tensors.h"

#include <torch/torch.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "trireme/core/error.h"
#include "trireme/core/thread_annotations.h"

namespace trireme::optim {
namespace {

using WeakTensor = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;

struct Mark {
  std::weak_ptr<const SplitTensors> how;
  WeakTensor piece;
};

class Marks {
 public:
  void set(const torch::Tensor& whole, const torch::Tensor& piece, const std::shared_ptr<const SplitTensors>& how) {
    const std::lock_guard lock(mutex_);
    std::erase_if(marks_, [](const auto& item) { return item.second.how.expired(); });
    const WeakTensor weak(piece.getIntrusivePtr());
    marks_.insert_or_assign(whole.unsafeGetTensorImpl(), Mark{how, weak});
    marks_.insert_or_assign(piece.unsafeGetTensorImpl(), Mark{how, weak});
  }
  std::optional<Mark> find(const torch::Tensor& tensor) {
    const std::lock_guard lock(mutex_);
    const auto found = marks_.find(tensor.unsafeGetTensorImpl());
    if (found == marks_.end() || found->second.how.expired()) return std::nullopt;
    return found->second;
  }

 private:
  Mutex mutex_;
  std::unordered_map<const void*, Mark> marks_ TRIREME_GUARDED_BY(mutex_);
};

// Never destroyed, as models may go while the process ends.
Marks& marks() {
  static auto* const all = new Marks;
  return *all;
}

class SpreadMarks {
 public:
  void set(const torch::Tensor& parameter, const std::shared_ptr<const SpreadModel>& model) {
    const std::lock_guard lock(mutex_);
    std::erase_if(marks_, [](const auto& item) { return item.second.expired(); });
    marks_[parameter.unsafeGetTensorImpl()] = model;
  }
  std::shared_ptr<const SpreadModel> find(const torch::Tensor& parameter) {
    const std::lock_guard lock(mutex_);
    const auto found = marks_.find(parameter.unsafeGetTensorImpl());
    return found == marks_.end() ? nullptr : found->second.lock();
  }

 private:
  Mutex mutex_;
  std::unordered_map<const void*, std::weak_ptr<const SpreadModel>> marks_ TRIREME_GUARDED_BY(mutex_);
};

SpreadMarks& spread_marks() {
  static auto* const all = new SpreadMarks;
  return *all;
}

}  // namespace

void mark_split(const torch::Tensor& whole, const torch::Tensor& piece,
                const std::shared_ptr<const SplitTensors>& how) {
  marks().set(whole, piece, how);
}

namespace {

using Originals = std::unordered_map<const void*, torch::Tensor>;

// The same, asked with copies.
std::shared_ptr<const SplitTensors> by_original(const std::shared_ptr<const SplitTensors>& how,
                                                const std::shared_ptr<const Originals>& originals) {
  const auto of_original = [weak = std::weak_ptr(how), originals](auto SplitTensors::*action) {
    return [=](const torch::Tensor& copy, const torch::Tensor& values) {
      const auto alive = weak.lock();
      if (!alive) throw UsageError("the model whose weights these tensors are copies of is gone");
      return ((*alive).*action)(originals->at(copy.unsafeGetTensorImpl()), values);
    };
  };
  auto mine = std::make_shared<SplitTensors>(*how);
  mine->join = of_original(&SplitTensors::join);
  mine->cut = of_original(&SplitTensors::cut);
  mine->sizes = [weak = std::weak_ptr(how), originals](const torch::Tensor& copy) {
    const auto alive = weak.lock();
    if (!alive) throw UsageError("the model whose weights these tensors are copies of is gone");
    return alive->sizes(originals->at(copy.unsafeGetTensorImpl()));
  };
  return mine;
}

}  // namespace

SplitMarks mark_split_like(const std::vector<torch::Tensor>& copies, const std::vector<torch::Tensor>& originals) {
  const auto original_of = std::make_shared<Originals>();
  std::unordered_map<const SplitTensors*, std::shared_ptr<const SplitTensors>> hows;
  for (size_t i = 0; i < copies.size(); ++i) {
    if (copies[i].is_same(originals[i])) continue;
    if (const auto model = spread_of({originals[i]})) mark_spread(copies[i], model);
    const std::shared_ptr<const SplitTensors> how = split_of(originals[i]);
    if (!how) continue;
    original_of->emplace(copies[i].unsafeGetTensorImpl(), originals[i]);
    auto& mine = hows[how.get()];
    if (!mine) mine = by_original(how, original_of);
    mark_split(copies[i], copies[i], mine);
  }
  SplitMarks marks;
  for (const auto& [how, mine] : hows) marks.push_back(mine);
  return marks;
}

std::shared_ptr<const SplitTensors> split_of(const torch::Tensor& parameter) {
  const std::optional<Mark> mark = marks().find(parameter);
  return mark ? mark->how.lock() : nullptr;
}

torch::Tensor piece_of(const torch::Tensor& parameter) {
  const std::optional<Mark> mark = marks().find(parameter);
  if (!mark) return parameter;
  auto piece = mark->piece.lock();
  return piece ? torch::Tensor(std::move(piece)) : parameter;
}

void mark_spread(const torch::Tensor& parameter, const std::shared_ptr<const SpreadModel>& model) {
  spread_marks().set(parameter, model);
}

std::shared_ptr<const SpreadModel> spread_of(const std::vector<torch::Tensor>& parameters) {
  for (const torch::Tensor& parameter : parameters)
    if (auto model = spread_marks().find(parameter)) return model;
  return nullptr;
}

std::string complaint_about_parts(const torch::optim::Optimizer& optimizer) {
  if (!dynamic_cast<const torch::optim::LBFGS*>(&optimizer)) return "";
  for (const torch::optim::OptimizerParamGroup& group : optimizer.param_groups())
    for (const torch::Tensor& parameter : group.params())
      if (split_of(parameter) || spread_of({parameter}))
        return "LBFGS computes a step from products over all parameters, but this rank has only a part of them, so "
               "each rank would step in a direction of its own; take an optimizer that treats every number by itself, "
               "such as SGD, Adam, AdamW, RMSprop or Adagrad";
  return "";
}

std::vector<SplitGroup> by_split(const std::vector<torch::Tensor>& parameters) {
  std::vector<SplitGroup> groups;
  for (const torch::Tensor& parameter : parameters) {
    const std::shared_ptr<const SplitTensors> how = split_of(parameter);
    auto group = std::find_if(groups.begin(), groups.end(), [&](const SplitGroup& one) { return one.how == how; });
    if (group == groups.end()) group = groups.insert(groups.end(), SplitGroup{how, {}});
    group->parameters.push_back(parameter);
  }
  return groups;
}

}  // namespace trireme::optim
