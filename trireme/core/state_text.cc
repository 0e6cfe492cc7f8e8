#include "trireme/core/state_text.h"

#include <charconv>

#include "trireme/core/error.h"
#include "trireme/core/text.h"

namespace trireme {

StateReader::StateReader(std::string_view text, std::string_view form)
    : text_(text), form_(form), parts_(split(text, ' ')) {
  const std::vector<std::string> expected = split(form, ' ');
  const std::string head = expected[0] + " " + expected[1];
  part_ = text.substr(0, head.size());
  if (parts_.size() != expected.size() || !text.starts_with(head + " ")) refuse();
}

std::string_view StateReader::word(std::string_view name) {
  part_ = parts_.at(next_++);
  if (!part_.starts_with(fmt::format("{}=", name))) refuse();
  return std::string_view(part_).substr(name.size() + 1);
}

double StateReader::real(std::string_view name) {
  const std::string_view digits = word(name);
  double value = 0;
  const char* const end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, value);
  if (error != std::errc() || stop != end) refuse();
  return value;
}

int64_t StateReader::whole(std::string_view name, int64_t low, int64_t high) {
  return whole_of(word(name), low, high);
}

int64_t StateReader::whole_of(std::string_view digits, int64_t low, int64_t high) const {
  const auto number = parse_int(digits, low, high);
  if (!number) refuse();
  return *number;
}

void StateReader::refuse() const {
  throw UsageError("{} state '{}': '{}' is not understood; expected '{}'", form_.substr(0, form_.find(' ')),
                   printable(text_.substr(0, 200)), printable(part_.substr(0, 100)), form_);
}

}  // namespace trireme
