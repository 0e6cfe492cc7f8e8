#include "trireme/train/callback.h"

#include "trireme/core/log.h"
#include "trireme/core/text.h"

namespace trireme {

void Callback::on_train_begin(Run& /*run*/) {}
void Callback::on_train_end(Run& /*run*/) {}
void Callback::on_epoch_begin(Run& /*run*/) {}
void Callback::on_epoch_end(Run& /*run*/) {}
void Callback::on_train_batch_begin(Run& /*run*/) {}
void Callback::on_train_batch_end(Run& /*run*/) {}
void Callback::on_eval_begin(Run& /*run*/) {}
void Callback::on_eval_end(Run& /*run*/) {}
void Callback::on_eval_batch_begin(Run& /*run*/) {}
void Callback::on_eval_batch_end(Run& /*run*/) {}
void Callback::on_predict_begin(Run& /*run*/) {}
void Callback::on_predict_end(Run& /*run*/) {}
void Callback::on_predict_batch_begin(Run& /*run*/) {}
void Callback::on_predict_batch_end(Run& /*run*/) {}

std::string Callback::state_text() const {
  return "";
}
void Callback::load_state(const std::string& /*text*/) {}

std::string Callbacks::state_text() const {
  std::vector<std::string> lines;
  for (const Held<Callback>& one : all_)
    if (std::string line = one->state_text(); !line.empty()) lines.push_back(std::move(line));
  return join(lines, "\n");
}

void Callbacks::load_state(const std::string& text) const {
  const std::vector<std::string> lines = text.empty() ? std::vector<std::string>() : split(text, '\n');
  std::vector<Callback*> with_state;
  for (const Held<Callback>& one : all_)
    if (!one->state_text().empty()) with_state.push_back(&*one);
  if (lines.size() != with_state.size())
    return log_warning("[train] the checkpoint has the states of {} callbacks, and this fit has {}; they start anew",
                       lines.size(), with_state.size());
  for (size_t i = 0; i < lines.size(); ++i) with_state[i]->load_state(lines[i]);
}

}  // namespace trireme
