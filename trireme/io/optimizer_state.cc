#include "trireme/io/optimizer_state.h"

#include <torch/torch.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <tuple>
#include <unordered_map>

#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/io/format/safetensors_format.h"

namespace trireme::io {
namespace {

using namespace torch::optim;  // NOLINT(google-build-using-namespace): the names below are all from there

// Those fields of all optimizers' options and states that `of` has: for saving and loading alike.
template <typename OptionsOrState, typename Visit>
void fields(OptionsOrState& of, Visit visit) {
  if constexpr (requires { of.lr(); }) visit("lr", of.lr());
  if constexpr (requires { of.momentum(); }) visit("momentum", of.momentum());
  if constexpr (requires { of.dampening(); }) visit("dampening", of.dampening());
  if constexpr (requires { of.weight_decay(); }) visit("weight_decay", of.weight_decay());
  if constexpr (requires { of.nesterov(); }) visit("nesterov", of.nesterov());
  if constexpr (requires { of.betas(); }) {
    visit("beta1", std::get<0>(of.betas()));
    visit("beta2", std::get<1>(of.betas()));
  }
  if constexpr (requires { of.eps(); }) visit("eps", of.eps());
  if constexpr (requires { of.amsgrad(); }) visit("amsgrad", of.amsgrad());
  if constexpr (requires { of.alpha(); }) visit("alpha", of.alpha());
  if constexpr (requires { of.centered(); }) visit("centered", of.centered());
  if constexpr (requires { of.lr_decay(); }) visit("lr_decay", of.lr_decay());
  if constexpr (requires { of.initial_accumulator_value(); })
    visit("initial_accumulator_value", of.initial_accumulator_value());
  if constexpr (requires { of.step(); }) visit("step", of.step());
  if constexpr (requires { of.momentum_buffer(); }) visit("momentum_buffer", of.momentum_buffer());
  if constexpr (requires { of.exp_avg(); }) visit("exp_avg", of.exp_avg());
  if constexpr (requires { of.exp_avg_sq(); }) visit("exp_avg_sq", of.exp_avg_sq());
  if constexpr (requires { of.max_exp_avg_sq(); }) visit("max_exp_avg_sq", of.max_exp_avg_sq());
  if constexpr (requires { of.square_avg(); }) visit("square_avg", of.square_avg());
  if constexpr (requires { of.grad_avg(); }) visit("grad_avg", of.grad_avg());
  if constexpr (requires { of.sum(); }) visit("sum", of.sum());
}

template <typename OptionsType, typename StateType>
struct Kind {
  using Options = OptionsType;
  using State = StateType;
  const char* name;
};

template <typename Use, typename First, typename... Rest>
void with_first_fitting(const OptimizerOptions& options, Use use, First first, Rest... rest) {
  if (dynamic_cast<const typename First::Options*>(&options))
    use(first);
  else if constexpr (sizeof...(rest) > 0)
    with_first_fitting(options, use, rest...);
  else
    throw UsageError("the state of this optimizer cannot be saved: it is not SGD, Adam, AdamW, RMSprop or Adagrad");
}

/// Calls `use` with the optimizer's Kind. Options tell it, not the class: a fused Adam is an Adam.
template <typename Use>
void with_kind(const Optimizer& optimizer, Use use) {
  with_first_fitting(optimizer.defaults(), use, Kind<SGDOptions, SGDParamState>{"sgd"},
                     Kind<AdamOptions, AdamParamState>{"adam"}, Kind<AdamWOptions, AdamWParamState>{"adamw"},
                     Kind<RMSpropOptions, RMSpropParamState>{"rmsprop"},
                     Kind<AdagradOptions, AdagradParamState>{"adagrad"});
}

std::string groups_key(const char* kind) {
  return fmt::format("{}/groups", kind);
}
std::string group_prefix(const char* kind, size_t group) {
  return fmt::format("{}/groups/{}/", kind, group);
}
std::string state_prefix(const char* kind, const std::string& parameter) {
  return fmt::format("{}/state/{}/", kind, parameter);
}

std::string group_of_prefix(const char* kind) {
  return fmt::format("{}/group_of/", kind);
}

struct Saver {
  TensorMap& to;
  std::string prefix;
  void operator()(const char* field, double value) const {
    to.insert(prefix + field, at::scalar_tensor(value, torch::kDouble));
  }
  void operator()(const char* field, int64_t value) const {
    to.insert(prefix + field, at::scalar_tensor(value, torch::kLong));
  }
  void operator()(const char* field, bool value) const {
    to.insert(prefix + field, at::scalar_tensor(value, torch::kBool));
  }
  void operator()(const char* field, const torch::Tensor& value) const {
    if (value.defined()) to.insert(prefix + field, value.detach());
  }
};

struct Loader {
  const TensorMap& from;
  std::string prefix;
  torch::Tensor parameter = {};  // state tensors must have its shape, and get its device and layout

  const torch::Tensor& number(const char* field, torch::ScalarType type) const {
    const torch::Tensor* found = from.find(prefix + field);
    if (!found)
      throw UsageError("the optimizer's state has no '{}{}'; it is damaged or of another version", prefix, field);
    if (found->numel() != 1 || found->scalar_type() != type)
      throw UsageError("the optimizer's state has {} {} as '{}{}' instead of one {}",
                       c10::toString(found->scalar_type()), shape_text(found->sizes().vec()), prefix, field,
                       c10::toString(type));
    return *found;
  }
  void operator()(const char* field, double& value) const { value = number(field, torch::kDouble).item<double>(); }
  void operator()(const char* field, int64_t& value) const { value = number(field, torch::kLong).item<int64_t>(); }
  void operator()(const char* field, bool& value) const { value = number(field, torch::kBool).item<bool>(); }
  void operator()(const char* field, torch::Tensor& value) const {
    const torch::Tensor* found = from.find(prefix + field);
    if (!found) return;
    if (found->sizes() != parameter.sizes())
      throw UsageError("the optimizer's state '{}{}' has shape {}, but its parameter {}; is it another model's?",
                       prefix, field, shape_text(found->sizes().vec()), shape_text(parameter.sizes().vec()));
    value = torch::empty_like(parameter, parameter.options().dtype(found->scalar_type()).requires_grad(false));
    value.copy_(*found);
  }
};

using Names = std::unordered_map<void*, std::string>;

Names names_of(const TensorMap& parameters) {
  Names names;
  for (const auto& item : parameters) names.emplace(item.value().unsafeGetTensorImpl(), item.key());
  return names;
}

const std::string& name_of(const torch::Tensor& parameter, const Names& names) {
  const auto found = names.find(parameter.unsafeGetTensorImpl());
  if (found == names.end())
    throw UsageError(
        "a parameter of shape {} of the optimizer has no name; give the parameters of all modules that it trains",
        shape_text(parameter.sizes().vec()));
  return found->second;
}

template <typename Use>
void each_parameter(const Optimizer& optimizer, const TensorMap& parameters, Use use) {
  const Names names = names_of(parameters);
  for (const auto& group : optimizer.param_groups())
    for (const torch::Tensor& parameter : group.params()) use(parameter, name_of(parameter, names));
}

int64_t whole_number(const torch::Tensor& tensor) {
  return tensor.numel() == 1 ? tensor.to(torch::kLong).item<int64_t>() : -1;
}

// The parameters that have entries in `tensors`. Every entry must be of this kind.
std::set<std::string> named_in(const TensorMap& tensors, const char* kind) {
  std::set<std::string> names;
  const std::string prefix = state_prefix(kind, "");
  const size_t start = prefix.size() - 1;  // of "/state//", the part before the name
  for (const auto& item : tensors) {
    const std::string& key = item.key();
    if (!key.starts_with(fmt::format("{}/", kind)))
      throw UsageError("this is the state of another optimizer: it has '{}', but this optimizer is '{}'",
                       printable(key), kind);
    if (key.starts_with(prefix.substr(0, start))) names.insert(key.substr(start, key.rfind('/') - start));
  }
  return names;
}

void check_groups(const Optimizer& optimizer, const TensorMap& tensors, const char* kind) {
  int64_t groups = 0;
  Loader{tensors, ""}(groups_key(kind).c_str(), groups);
  if (static_cast<size_t>(groups) != optimizer.param_groups().size())
    throw UsageError("the optimizer's state has {} groups of parameters, but this optimizer has {}", groups,
                     optimizer.param_groups().size());
}

using States = std::vector<std::pair<void*, std::unique_ptr<OptimizerParamState>>>;

template <typename K>
States read_states(const Optimizer& optimizer, const TensorMap& parameters, const TensorMap& tensors, K kind) {
  States states;
  std::set<std::string> names = named_in(tensors, kind.name);
  each_parameter(optimizer, parameters, [&](const torch::Tensor& parameter, const std::string& name) {
    if (names.erase(name) == 0) return;  // it has not been stepped yet
    auto state = std::make_unique<typename K::State>();
    fields(*state, Loader{tensors, state_prefix(kind.name, name), parameter});
    states.emplace_back(parameter.unsafeGetTensorImpl(), std::move(state));
  });
  if (!names.empty())
    throw UsageError("the optimizer's state names {} parameters that this optimizer does not have, such as '{}'",
                     names.size(), printable(*names.begin()));
  return states;
}

template <typename K>
typename K::Options read_group(const typename K::Options& start, const TensorMap& tensors, int64_t number, K kind) {
  auto options = start;
  fields(options, Loader{tensors, group_prefix(kind.name, static_cast<size_t>(number))});
  return options;
}

// The options that the parameters of a group had, which must agree; those it has when none of them was saved.
template <typename K>
typename K::Options options_of_group(const OptimizerParamGroup& group, const Names& names, const TensorMap& tensors,
                                     K kind) {
  const auto& now = static_cast<const typename K::Options&>(group.options());
  std::optional<std::pair<std::string, typename K::Options>> found;
  for (const torch::Tensor& parameter : group.params()) {
    const std::string& name = name_of(parameter, names);
    const torch::Tensor* number = tensors.find(group_of_prefix(kind.name) + name);
    if (!number) continue;
    const auto options = read_group(now, tensors, whole_number(*number), kind);
    if (found && !(found->second == options))
      throw UsageError(
          "the optimizer's state has other options (learning rate, weight decay) for parameter '{}' than for '{}', "
          "but this optimizer has both in one group; make the groups as they were",
          printable(name), printable(found->first));
    if (!found) found.emplace(name, options);
  }
  return found ? found->second : now;
}

template <typename K>
std::vector<typename K::Options> read_options(const Optimizer& optimizer, const TensorMap& parameters,
                                              const TensorMap& tensors, K kind) {
  const bool by_parameter = std::any_of(tensors.begin(), tensors.end(), [&](const auto& item) {
    return item.key().starts_with(group_of_prefix(kind.name));
  });
  if (!by_parameter) check_groups(optimizer, tensors, kind.name);
  const Names names = names_of(parameters);
  std::vector<typename K::Options> all;
  for (const auto& group : optimizer.param_groups()) {
    const auto& now = static_cast<const typename K::Options&>(group.options());
    const auto number = static_cast<int64_t>(all.size());
    all.push_back(by_parameter ? options_of_group(group, names, tensors, kind)
                               : read_group(now, tensors, number, kind));
  }
  return all;
}

template <typename K>
void save(const Optimizer& optimizer, const TensorMap& parameters, K kind, TensorMap& to) {
  const auto& groups = optimizer.param_groups();
  Saver{to, ""}(groups_key(kind.name).c_str(), static_cast<int64_t>(groups.size()));
  for (size_t i = 0; i < groups.size(); ++i) {
    auto options = static_cast<const typename K::Options&>(groups[i].options());
    fields(options, Saver{to, group_prefix(kind.name, i)});
  }
  const Names names = names_of(parameters);
  for (size_t i = 0; i < groups.size(); ++i)
    for (const torch::Tensor& parameter : groups[i].params())
      Saver{to, group_of_prefix(kind.name)}(name_of(parameter, names).c_str(), static_cast<int64_t>(i));
  each_parameter(optimizer, parameters, [&](const torch::Tensor& parameter, const std::string& name) {
    const auto found = optimizer.state().find(parameter.unsafeGetTensorImpl());
    if (found == optimizer.state().end()) return;
    auto state = static_cast<const typename K::State&>(*found->second);
    fields(state, Saver{to, state_prefix(kind.name, name)});
  });
}

}  // namespace

TensorMap optimizer_state(const Optimizer& optimizer, const TensorMap& parameters) {
  TensorMap tensors;
  with_kind(optimizer, [&](auto kind) { save(optimizer, parameters, kind, tensors); });
  return tensors;
}

void load_optimizer_state(Optimizer& optimizer, const TensorMap& parameters, const TensorMap& tensors) {
  const torch::NoGradGuard no_grad;
  with_kind(optimizer, [&](auto kind) {
    States states = read_states(optimizer, parameters, tensors, kind);
    const auto options = read_options(optimizer, parameters, tensors, kind);
    for (size_t i = 0; i < options.size(); ++i)
      static_cast<typename decltype(kind)::Options&>(optimizer.param_groups()[i].options()) = options[i];
    optimizer.state().clear();
    for (auto& [key, state] : states) optimizer.state()[key] = std::move(state);
  });
}

namespace {

constexpr std::string_view kGroups = "/groups", kGroupOf = "/group_of/";

// Of "adam/groups/3/lr" the 3 and where it stands; -1 for entries of other kinds.
struct GroupEntry {
  explicit GroupEntry(const std::string& key) {
    const size_t slash = key.find('/');
    if (slash == std::string::npos || key.compare(slash, kGroups.size() + 1, std::string(kGroups) + "/") != 0) return;
    begin = slash + kGroups.size() + 1;
    end = key.find('/', begin);
    if (end != std::string::npos) number = parse_int(key.substr(begin, end - begin), 0, INT64_MAX).value_or(-1);
  }
  size_t begin = 0, end = 0;
  int64_t number = -1;
};

bool is_group_of(const std::string& key) {
  const size_t slash = key.find('/');
  return slash != std::string::npos && key.compare(slash, kGroupOf.size(), kGroupOf) == 0;
}

bool is_group_count(const std::string& key) {
  return key.ends_with(kGroups) && key.find('/') == key.size() - kGroups.size();
}

template <typename Number>
TensorMap renumbered(const TensorMap& tensors, const Number& number) {
  TensorMap result;
  for (const auto& item : tensors) {
    std::string key = item.key();
    torch::Tensor value = item.value();
    if (const GroupEntry entry(key); entry.number >= 0)
      key.replace(entry.begin, entry.end - entry.begin, std::to_string(number(entry.number)));
    else if (is_group_of(key))
      value = at::scalar_tensor(number(whole_number(value)), torch::kLong);
    if (!result.contains(key)) result.insert(key, value);
  }
  return result;
}

}  // namespace

TensorMap with_group_numbers_from(int64_t first, const TensorMap& tensors) {
  return renumbered(tensors, [&](int64_t number) { return first + number; });
}

TensorMap with_equal_groups_merged(const TensorMap& tensors) {
  std::map<int64_t, std::string> options;  // of each group, as a text
  std::vector<int64_t> order;              // by first mention
  for (const auto& item : tensors)
    if (const GroupEntry entry(item.key()); entry.number >= 0) {
      if (!options.contains(entry.number)) order.push_back(entry.number);
      options[entry.number] +=
          fmt::format("{} {:a}\n", item.key().substr(entry.end), item.value().to(torch::kDouble).item<double>());
    }
  std::map<std::string, int64_t> merged;
  std::map<int64_t, int64_t> numbers;
  for (const int64_t number : order)
    numbers[number] = merged.try_emplace(options[number], static_cast<int64_t>(merged.size())).first->second;
  TensorMap result = renumbered(tensors, [&](int64_t number) {
    const auto found = numbers.find(number);
    return found == numbers.end() ? number : found->second;
  });
  for (auto& item : result)
    if (is_group_count(item.key())) item.value() = at::scalar_tensor(static_cast<int64_t>(merged.size()), torch::kLong);
  return result;
}

}  // namespace trireme::io
