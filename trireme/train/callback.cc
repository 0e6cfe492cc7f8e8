#include "trireme/train/callback.h"

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

}  // namespace trireme
