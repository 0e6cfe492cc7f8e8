#include "trireme/core/host_identity.h"

#include <fmt/core.h>
#include <sys/stat.h>

#include <cerrno>

#include "trireme/core/error.h"
#include "trireme/core/file.h"
#include "trireme/core/text.h"

namespace trireme {
namespace {

uint64_t namespace_number(const char* name) {
  struct stat info {};
  const std::string path = fmt::format("/proc/self/ns/{}", name);
  if (::stat(path.c_str(), &info) != 0) throw SystemError(errno, "cannot read {}: is /proc mounted?", path);
  return info.st_ino;
}

}  // namespace

HostIdentity this_host() {
  const char* path = "/proc/sys/kernel/random/boot_id";
  const auto boot_id = read_file(path);
  if (!boot_id) throw SystemError(errno, "cannot read {}: is /proc mounted?", path);
  return {std::string(trim(*boot_id)), namespace_number("ipc"), namespace_number("pid")};
}

}  // namespace trireme
