// An engine that never comes back, for serve_test.py: it hangs while it loads a model of that name, else with the first
// batch after the one at the start.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>

#include "trireme/deploy/infer/engine_plugin.h"

namespace trireme::infer {
namespace {

[[noreturn]] void hang() {
  std::fputs("the engine hangs\n", stderr);
  while (true) ::pause();
}

class HangingEngine : public Engine {
 public:
  std::string name() const override { return "an engine that hangs"; }
  void run(std::span<const float> /*images*/, int64_t /*batch*/, std::span<float> scores) override {
    if (began_.exchange(true)) hang();
    std::fill(scores.begin(), scores.end(), 0.0F);
  }

 private:
  std::atomic<bool> began_{false};
};

std::unique_ptr<Engine> make(const EngineOptions& /*options*/, const bundle::Description& description,
                             const EngineSetting& /*setting*/) {
  if (description.model_name == "loads for ever") hang();
  return std::make_unique<HangingEngine>();
}

const EnginePlugin kPlugin = {.version = kVersion, .make = make};

}  // namespace
}  // namespace trireme::infer

extern "C" const trireme::infer::EnginePlugin* trireme_engine_plugin() {
  return &trireme::infer::kPlugin;
}
