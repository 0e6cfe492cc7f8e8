#include "trireme/train/callback_list.h"

#include "trireme/core/log.h"
#include "trireme/core/text.h"

namespace trireme::train {

std::string CallbackList::state_text() const {
  std::vector<std::string> lines;
  for (const Owned<Callback>& one : all_)
    if (std::string line = one->state_text(); !line.empty()) lines.push_back(std::move(line));
  return join(lines, "\n");
}

void CallbackList::load_state(const std::string& text) const {
  const std::vector<std::string> lines = text.empty() ? std::vector<std::string>() : split(text, '\n');
  std::vector<Callback*> with_state;
  for (const Owned<Callback>& one : all_)
    if (!one->state_text().empty()) with_state.push_back(&*one);
  if (lines.size() != with_state.size())
    return log_warning(
        "[train] the checkpoint has the states of {} callbacks, and this fit has {}; they start again from nothing",
        lines.size(), with_state.size());
  for (size_t i = 0; i < lines.size(); ++i) with_state[i]->load_state(lines[i]);
}

}  // namespace trireme::train
