// The file that tells scripts the port of a server (--port-file).
//
//   PortFile file(path);       // removes the file of an earlier server, whose port would be taken for ours
//   file.write(8080);          // appears whole
//
// Removes it in the end, unless another server has written its own there. An empty path: no file at all. Throws
// UsageError for a path that is not a file, SystemError. Not thread-safe.
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
  /// What the destructor does. Call it while the port is still ours: then the same content cannot be another server's.
  void remove() noexcept;

 private:
  std::filesystem::path path_;
  std::string content_;  // "": not written
};

}  // namespace trireme::serve
