#include "trireme/watch/process_usage.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdint>
#include <limits>

#include "trireme/core/file.h"
#include "trireme/core/text.h"

namespace trireme::watch {

std::optional<Usage> read_usage(int pid) {
  const std::string stat = read_file(fmt::format("/proc/{}/stat", pid)).value_or("");
  const size_t name_end = stat.rfind(')');  // a name may hold blanks and brackets
  if (name_end == std::string::npos || name_end + 2 > stat.size()) return std::nullopt;
  const std::vector<std::string> fields = split(stat.substr(name_end + 2), ' ');  // from the third field on
  constexpr size_t kUser = 11, kSystem = 12, kPages = 21;
  if (fields.size() <= kPages) return std::nullopt;
  const auto field = [&](size_t place) {
    return static_cast<double>(parse_int(fields[place], 0, std::numeric_limits<int64_t>::max()).value_or(0));
  };
  return Usage{(field(kUser) + field(kSystem)) / static_cast<double>(::sysconf(_SC_CLK_TCK)),
               field(kPages) * static_cast<double>(::sysconf(_SC_PAGESIZE))};
}

}  // namespace trireme::watch
