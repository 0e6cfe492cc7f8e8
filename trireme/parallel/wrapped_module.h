// Which modules have a wrapper that averages their gradients, and a look at those whose wrapper is gone.
//
// Hooks go with the wrapper. A module that is trained on would get the gradients of this rank alone, without a word. So a
// wrapper that ends leaves a sentinel: the next backward that gives the module's parameters gradients throws, unless
// another wrapper has them.
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_set>

#include "trireme/comm/group.h"

namespace trireme::parallel {

/// A member of a wrapper, as long as that lives.
class WrappedModule {
 public:
  /// `wrapper` is its name for messages. `group`: the ranks that it averages over; alone, no sentinel is needed.
  /// `keeps_equal`: all of them have the whole module.
  WrappedModule(const std::shared_ptr<torch::nn::Module>& module, const char* wrapper, const Group& group,
                bool keeps_equal);
  /// Leaves the sentinel. It does not keep the module alive, and is silent when the world has ended.
  ~WrappedModule();
  WrappedModule(const WrappedModule&) = delete;
  WrappedModule& operator=(const WrappedModule&) = delete;

 private:
  std::weak_ptr<torch::nn::Module> module_;
  const char* wrapper_;
  const bool averages_;
};

/// Called by all members of `callers`. Where a wrapper keeps this module equal on some of them: UsageError on each of
/// those that names the first parameter that differs; `when` says what they were about to do.
void require_equal_where_wrapped(const torch::nn::Module& module, const Group& callers, const std::string& when);

/// A backward of a wrapper averages over several ranks.
void note_averaged_backward();
/// How many have.
int64_t averaged_backwards();

/// The parameters of all modules that have a wrapper now, by their TensorImpl.
std::unordered_set<const void*> parameters_of_wrapped_modules();

}  // namespace trireme::parallel
