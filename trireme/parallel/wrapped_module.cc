#include "trireme/parallel/wrapped_module.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <utility>
#include <vector>

#include "trireme/comm/group.h"
#include "trireme/comm/members.h"
#include "trireme/core/error.h"
#include "trireme/core/log.h"
#include "trireme/core/thread_annotations.h"
#include "trireme/parallel/backward_watch.h"
#include "trireme/parallel/gradient_marks.h"
#include "trireme/parallel/init.h"
#include "trireme/parallel/model_parameters.h"
#include "trireme/parallel/parameter_check.h"

namespace trireme::parallel {
namespace {

using ModulePointer = std::shared_ptr<torch::nn::Module>;

// Looks at a module whose wrapper is gone before and after every backward.
class Sentinel final : public BackwardListener {
 public:
  Sentinel(std::weak_ptr<torch::nn::Module> module, const char* wrapper)
      : module_(std::move(module)), wrapper_(wrapper) {}

  ModulePointer module() const { return module_.lock(); }

  void before_backward() override {
    const std::lock_guard lock(mutex_);
    marks_.reset();
    parameters_.clear();
    const ModulePointer module = module_.lock();
    if (!module || !is_initialized() || !is_only_backward()) return;
    parameters_ = ModelParameters(*module).trainable();
    marks_.emplace(parameters_);
  }
  void after_backward() override {
    const std::lock_guard lock(mutex_);
    const std::vector<ModelParameter> parameters = std::exchange(parameters_, {});
    for (size_t i = 0; marks_ && i < parameters.size(); ++i)
      if (marks_->has_changed(i, parameters[i]) &&
          !parameters_of_wrapped_modules().contains(parameters[i].tensor.unsafeGetTensorImpl()))
        throw UsageError(
            "{}: parameter {} got a gradient of this rank alone: the {} of its module is gone (it left its scope, or "
            "was never given a name); keep it as long as the module is trained. To train on this rank alone, train a "
            "copy (clone()), or call destroy_parallel_env() first",
            own_place(Group::world()), parameters[i].name, wrapper_);
  }

 private:
  std::weak_ptr<torch::nn::Module> module_;
  const char* wrapper_;
  Mutex mutex_;                                                        // two threads may begin backwards of two models
  std::vector<ModelParameter> parameters_ TRIREME_GUARDED_BY(mutex_);  // during a backward
  std::optional<GradientMarks> marks_ TRIREME_GUARDED_BY(mutex_);
};

struct Wrapped {
  std::weak_ptr<torch::nn::Module> module;
  Group equal;  // the ranks that have the same; none: the ranks have parts of it
};

class WrappedModules {
 public:
  void add(const ModulePointer& module, const Group& equal) {
    const std::lock_guard lock(mutex_);
    wrapped_.push_back({module, equal});
    const std::vector<ModulePointer> parts = module->modules();  // itself, too
    std::erase_if(sentinels_, [&](const auto& sentinel) {
      const ModulePointer watched = sentinel->module();
      return !watched || std::find(parts.begin(), parts.end(), watched) != parts.end();
    });
  }
  /// `wrapper`: null, no sentinel.
  void remove(const ModulePointer& module, const char* wrapper) {
    const std::lock_guard lock(mutex_);
    const auto is_it = [&](const Wrapped& one) { return one.module.lock() == module; };
    if (const auto found = std::find_if(wrapped_.begin(), wrapped_.end(), is_it); found != wrapped_.end())
      wrapped_.erase(found);
    if (!module || !wrapper || std::any_of(wrapped_.begin(), wrapped_.end(), is_it)) return;
    sentinels_.push_back(std::make_shared<Sentinel>(module, wrapper));
    listen_to_backwards(sentinels_.back());
  }
  std::unordered_set<const void*> parameters() {
    const std::lock_guard lock(mutex_);
    std::unordered_set<const void*> all;
    for (const Wrapped& one : wrapped_)
      if (const ModulePointer module = one.module.lock())
        for (const torch::Tensor& parameter : module->parameters()) all.insert(parameter.unsafeGetTensorImpl());
    return all;
  }
  std::vector<Group> equal_groups_of(const torch::nn::Module& module) {
    const std::lock_guard lock(mutex_);
    std::vector<Group> groups;
    for (const Wrapped& one : wrapped_)
      if (one.module.lock().get() == &module && one.equal.is_member()) groups.push_back(one.equal);
    return groups;
  }

 private:
  Mutex mutex_;
  std::vector<Wrapped> wrapped_ TRIREME_GUARDED_BY(mutex_);  // once for each wrapper
  std::vector<std::shared_ptr<Sentinel>> sentinels_ TRIREME_GUARDED_BY(mutex_);
};

std::atomic<int64_t> g_averaged_backwards = 0;

// Never destroyed, as wrappers may end while the process does.
WrappedModules& wrapped_modules() {
  static auto* const one = new WrappedModules;
  return *one;
}

}  // namespace

WrappedModule::WrappedModule(const std::shared_ptr<torch::nn::Module>& module, const char* wrapper, const Group& group,
                             bool keeps_equal)
    : module_(module), wrapper_(wrapper), averages_(group.size() > 1) {
  wrapped_modules().add(module, averages_ && keeps_equal ? group : Group());
}

WrappedModule::~WrappedModule() {
  wrapped_modules().remove(module_.lock(), averages_ ? wrapper_ : nullptr);
}

void require_equal_where_wrapped(const torch::nn::Module& module, const Group& callers, const std::string& when) {
  const auto calls = [&](int rank) {
    return std::find(callers.ranks().begin(), callers.ranks().end(), rank) != callers.ranks().end();
  };
  for (const Group& group : wrapped_modules().equal_groups_of(module))
    if (std::all_of(group.ranks().begin(), group.ranks().end(), calls)) {
      try {
        require_equal_parameters(module, group, when, NonFinite::allowed);
      } catch (const PeerError& error) {  // the wrapper's group ended with a backward that failed
        log_warning("{}: the weights of the ranks are not compared: {}", when, error.what());
      }
    }
}

void note_averaged_backward() {
  ++g_averaged_backwards;
}

int64_t averaged_backwards() {
  return g_averaged_backwards;
}

std::unordered_set<const void*> parameters_of_wrapped_modules() {
  return wrapped_modules().parameters();
}

}  // namespace trireme::parallel
