#include "trireme/core/levers.h"

#include <algorithm>
#include <string>
#include <vector>

#include "trireme/core/env.h"
#include "trireme/core/error.h"
#include "trireme/core/text.h"

namespace trireme {
namespace {

const std::vector<std::string> kLeverNames{"blocks", "fused_optimizers", "streaming_stores",
                                           "scaled_jpeg"};  // as Lever

}  // namespace

bool is_on(Lever lever) {
  const auto without = env::get_nonempty("TRIREME_WITHOUT");
  if (!without) return true;
  const std::vector<std::string> words = split(*without, ',');
  for (const std::string& word : words)
    if (std::find(kLeverNames.begin(), kLeverNames.end(), word) == kLeverNames.end())
      throw UsageError("TRIREME_WITHOUT is '{}', and there is no '{}' to switch off; write one or more of {}", *without,
                       word, join(kLeverNames, ","));
  return std::find(words.begin(), words.end(), kLeverNames[static_cast<size_t>(lever)]) == words.end();
}

}  // namespace trireme
