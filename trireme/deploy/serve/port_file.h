// The file that tells scripts the port of a server (--port-file).
//
//   PortFile file(path);       // whatever an earlier server left there is gone: nobody takes its port for ours
//   file.write(8080);          // appears whole
//
// Removes it in the end, unless another server has written its own there. An empty path: no file at all. Throws
// UsageError for what is no file, SystemError. Not thread-safe.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace trireme::serve {

class PortFile {
 public:
  explicit PortFile(std::filesystem::path path);
  ~PortFile() { remove(); }
  PortFile(const PortFile&) = delete;
  PortFile& operator=(const PortFile&) = delete;

  void write(uint16_t port);
  /// As in the end. While the port is still ours, so that the same content is no other's.
  void remove() noexcept;

 private:
  std::filesystem::path path_;
  std::string content_;  // "": not written
};

}  // namespace trireme::serve
