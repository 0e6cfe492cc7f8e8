// Reads a state that is one line of text, as checkpoints keep it: "scaler 1 scale=65536 good=7 bad=0".
//
//   StateReader reader(text, "scaler 1 scale=… good=… bad=…");
//   double scale = reader.real("scale");
//   int64_t good = reader.whole("good");
//
// Parts are read in the order of the line. What does not fit is a UsageError that shows the part and the form.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace trireme {

class StateReader {
 public:
  /// The text must have as many parts as `form`, which must outlive the reader, and begin with the same two.
  StateReader(std::string_view text, std::string_view form);

  std::string_view word(std::string_view name);
  double real(std::string_view name);
  int64_t whole(std::string_view name, int64_t low = 0, int64_t high = std::numeric_limits<int64_t>::max());
  /// A number within the part that was read last.
  int64_t whole_of(std::string_view digits, int64_t low, int64_t high) const;

  /// Throws the UsageError about the part that was read last.
  [[noreturn]] void refuse() const;

 private:
  std::string text_;
  std::string_view form_;
  std::vector<std::string> parts_;
  std::string part_;
  size_t next_ = 2;
};

}  // namespace trireme
