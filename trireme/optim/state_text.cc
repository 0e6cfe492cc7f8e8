#include "trireme/optim/state_text.h"

#include <fmt/core.h>

#include <charconv>
#include <limits>

#include "trireme/core/error.h"
#include "trireme/core/text.h"

namespace trireme::optim {

StateWriter& StateWriter::add(std::string_view name, std::string_view value) {
  text_ += fmt::format(" {}={}", name, value);
  return *this;
}

StateWriter& StateWriter::add(std::string_view name, double value) {
  return add(name, std::string_view(fmt::format("{}", value)));  // the shortest text that reads back as the same number
}

StateWriter& StateWriter::add(std::string_view name, int64_t value) {
  return add(name, std::string_view(fmt::format("{}", value)));
}

StateReader::StateReader(std::string_view kind, std::string_view text) : kind_(kind), text_(text) {
  if (!text.starts_with(kind_ + " ")) refuse(text.substr(0, kind.size()));
  parts_ = split(text.substr(kind.size() + 1), ' ');
}

std::string StateReader::word(std::string_view name) {
  if (next_ == parts_.size()) refuse(fmt::format("{}=", name));
  const std::string& part = parts_[next_++];
  if (!part.starts_with(fmt::format("{}=", name))) refuse(part);
  return part.substr(name.size() + 1);
}

double StateReader::real(std::string_view name) {
  const std::string digits = word(name);
  double value = 0;
  const char* const end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, value);
  if (error != std::errc() || stop != end) refuse(parts_[next_ - 1]);
  return value;
}

int64_t StateReader::whole(std::string_view name) {
  const auto value = parse_int(word(name), 0, std::numeric_limits<int64_t>::max());
  if (!value) refuse(parts_[next_ - 1]);
  return *value;
}

void StateReader::refuse(std::string_view part) const {
  throw UsageError("state '{}': '{}' is missing or not understood; expected a line that begins with '{}'",
                   printable(text_.substr(0, 200)), printable(part.substr(0, 100)), kind_);
}

}  // namespace trireme::optim
