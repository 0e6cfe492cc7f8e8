// Stands in for gloo.cc where Gloo's headers are missing.
#include "trireme/comm/backends/gloo.h"
#include "trireme/core/error.h"

namespace trireme::comm {

std::unique_ptr<Engine> make_gloo_engine(const std::shared_ptr<Store>&, const GlooOptions&) {
  throw UsageError("no gloo backend: {}", *why_no_gloo());
}

std::optional<std::string> why_no_gloo() {
  return "built without Gloo's headers (Debian: libgloo-dev)";
}

std::string describe_gloo_interface(const std::string&) {
  return "none";
}

}  // namespace trireme::comm
