// The models of a server by name, and their replacement while it runs.
//
//   Models models([&] { return models_in(folder, predictor_options); }, load);   // all of them, or an Error
//   if (const std::shared_ptr<Model> model = models.find("lenet")) …             // stays whole while it is held
//   models.reload();                                                             // SIGHUP
//
// reload() loads everything again and then changes over at once; requests that have begun end with the model they began
// with. A model that cannot be loaded stays as it was, and the log says why. Thread-safe; reload() one call at a time.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/core/clock.h"
#include "trireme/core/thread_annotations.h"
#include "trireme/deploy/infer/predictor.h"
#include "trireme/deploy/serve/model.h"

namespace trireme::serve {

struct ModelSource {
  std::string name;  ///< "": as the model calls itself
  std::function<infer::Predictor()> load;
};

/// `folder` itself when it is what `trireme export` wrote, or is writing; else each of its subfolders that is, by its
/// name, but no hidden ones. Never none: a folder without any is a source whose load() says what is missing. Throws
/// SystemError: `folder` cannot be read.
std::vector<ModelSource> models_in(const std::filesystem::path& folder, const infer::PredictorOptions& options);

class Models {
 public:
  using Find = std::function<std::vector<ModelSource>()>;
  using Load = std::function<std::shared_ptr<Model>(const ModelSource&)>;

  /// Throws what `find` and `load` throw.
  Models(Find find, Load load);

  /// Nothing: no such model.
  std::shared_ptr<Model> find(std::string_view name) const;
  /// The only one there is; nothing: there are several.
  std::shared_ptr<Model> only() const;
  std::vector<std::string> names() const;
  size_t waiting() const;

  /// Whether everything could be loaded. Then waits, at most for `patience`, until the old models are idle and ends
  /// them on this thread; those that are not by then are left for the next call.
  bool reload(Clock::duration patience);

 private:
  using ByName = std::map<std::string, std::shared_ptr<Model>, std::less<>>;

  bool load_again(const ModelSource& source, const ByName& old, ByName& next) const;
  void change_over(const ByName& old, const ByName& next);
  void end_retired(Clock::duration patience);

  const Find find_;
  const Load load_;
  mutable Mutex mutex_;
  ByName models_ TRIREME_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<Model>> retired_;  // only reload() uses it
};

}  // namespace trireme::serve
