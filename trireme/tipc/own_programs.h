// Trireme's own programs behind other people's keys. A case written for PaddleClas or for a script of one's own names
// the options of those programs; with `trireme train` in their place, each line is passed on by the option that
// `trireme train` has for it. Every line keeps its meaning, so the file needs no other change.
//
//   key_for({"trireme", "train"}, "epochs", "--epochs")                    ->  "-o Global.epochs"
//   key_for({"trireme", "train"}, "epochs", "-o Global.epochs")            ->  the same
//   key_for({"./train.sh"}, "epochs", "--epochs")                          ->  "--epochs"
#pragma once

#include <string>
#include <string_view>

#include "trireme/tipc/words.h"

namespace trireme::tipc {

/// `train`, `eval`, `export` or `infer` when the command is that program of Trireme's; else "".
std::string own_program(const Words& command);

/// The option that carries the line `name` to the program: the line's key, or the program's own option; "null" when it
/// has none.
std::string key_for(const Words& command, std::string_view name, const std::string& key);

/// The value in the program's own words: `fp16` for `True` behind a key like use_fp16.
std::string value_for(const Words& command, std::string_view name, const std::string& key, const std::string& value);

/// What a training leaves: Trireme's checkpoints are folders, whatever Paddle's files are called.
std::string weights_name(const Words& train_command, const std::string& name);

}  // namespace trireme::tipc
