// What happens beside training: printing, saving, stopping early, anything of your own.
//
//   struct Bell : Callback {
//     void on_epoch_end(Run& run) override { if (run.is_main()) ring(run.logs.at("loss")); }
//   };
//   model.fit(train, {.callbacks = {Bell(), callback::EarlyStopping({.patience = 3})}});
//
// Every rank calls every callback at the same places, in the order given, so a callback may use collectives. What it
// sees in run.logs is the same on all ranks; what it prints or writes it should print or write where run.is_main().
#pragma once

#include <string>

#include "trireme/train/run.h"

namespace trireme {

/// The hooks in the order of a fit: train_begin { epoch_begin { train_batch … } epoch_end, evaluation } train_end. The
/// evaluation's hooks come after epoch_end. An exception out of a hook ends the fit.
class Callback {
 public:
  virtual ~Callback() = default;

  virtual void on_train_begin(Run& /*run*/) {}
  virtual void on_train_end(Run& /*run*/) {}
  virtual void on_epoch_begin(Run& /*run*/) {}
  virtual void on_epoch_end(Run& /*run*/) {}
  virtual void on_train_batch_begin(Run& /*run*/) {}
  virtual void on_train_batch_end(Run& /*run*/) {}

  virtual void on_eval_begin(Run& /*run*/) {}
  virtual void on_eval_end(Run& /*run*/) {}
  virtual void on_eval_batch_begin(Run& /*run*/) {}
  virtual void on_eval_batch_end(Run& /*run*/) {}

  virtual void on_predict_begin(Run& /*run*/) {}
  virtual void on_predict_end(Run& /*run*/) {}
  virtual void on_predict_batch_begin(Run& /*run*/) {}
  virtual void on_predict_batch_end(Run& /*run*/) {}

  /// What a callback must remember for a fit that is resumed, as one line; empty: nothing. load_state() is called after
  /// on_train_begin().
  virtual std::string state_text() const { return ""; }
  virtual void load_state(const std::string& /*text*/) {}
};

}  // namespace trireme
