// What libtrireme_openvino.so and libtrireme_torch.so offer to engine.cc. All are built together: the version is
// compared before anything else is used, because an Engine is handed over as the C++ object that it is.
#pragma once

#include <memory>
#include <string>

#include "trireme/core/text.h"
#include "trireme/core/version.h"
#include "trireme/deploy/infer/engine.h"

namespace trireme::infer {

/// What the engine is told beyond the user's wishes.
struct EngineSetting {
  bool amx_is_broken = false;  ///< stay away from matrix instructions (core/cpu_probe.h)
};

struct EnginePlugin {
  const char* version;  // kVersion, as the plugin was built with
  std::unique_ptr<Engine> (*make)(const EngineOptions& options, const bundle::Description& description,
                                  const EngineSetting& setting);
};

/// Of an error's text: libraries put a trace of their own source first, and what went wrong last.
inline std::string last_line(const std::string& text) {
  std::string last;
  for (const std::string& line : split(text, '\n'))
    if (!trim(line).empty()) last = trim(line);
  return last;
}

inline constexpr const char* kEnginePluginEntry = "trireme_engine_plugin";

}  // namespace trireme::infer

extern "C" const trireme::infer::EnginePlugin* trireme_engine_plugin();
