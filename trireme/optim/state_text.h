// The state of a scaler as one line of text, for a checkpoint's manifest:
//
//   StateWriter("scaler 1").add("scale", 65536.0).add("good", 7).text()     // "scaler 1 scale=65536 good=7"
//   StateReader reader("scaler 1", text);  reader.real("scale");  reader.whole("good");
//
// Numbers come back exactly as they were. Values hold no spaces. Internal to this folder.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::optim {

class StateWriter {
 public:
  explicit StateWriter(std::string_view kind) : text_(kind) {}
  StateWriter& add(std::string_view name, std::string_view value);
  StateWriter& add(std::string_view name, double value);
  StateWriter& add(std::string_view name, int64_t value);
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

/// Reads the parts in the order in which they were written. Throws UsageError that names the part it does not know.
class StateReader {
 public:
  StateReader(std::string_view kind, std::string_view text);
  std::string word(std::string_view name);
  double real(std::string_view name);
  int64_t whole(std::string_view name);  ///< not negative

 private:
  [[noreturn]] void refuse(std::string_view part) const;

  std::string kind_;
  std::string text_;
  std::vector<std::string> parts_;
  size_t next_ = 0;
};

}  // namespace trireme::optim
