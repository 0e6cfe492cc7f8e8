// From PROGRAM as the user typed it to a command that will start, or an error that says why it will not.
//
//   resolve_program({"train.py", "--lr", "0.1"}, path, {})   ->  python3 -u train.py --lr 0.1
//   resolve_program({"hostname"}, "/bin:/usr/bin", {})       ->  /bin/hostname
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace trireme::launch {

/// `command` is PROGRAM and its arguments, `path_variable` the value of PATH. A name without a slash is looked for
/// there as execvp(3) does; `*.py` is given to python3 unless `no_python`: to that of the virtual environment which
/// this program was started from, else to that in PATH.
/// Throws Error with exit code 127 (not found) or 126 (found, but it cannot be executed: a directory, no permission,
/// an absent #! interpreter, a broken file or one for another machine), and the message says what to do.
std::vector<std::string> resolve_program(const std::vector<std::string>& command, const std::string& path_variable,
                                         bool no_python);

/// The python3 in the same folder as `program`, if that is the path of a file in a virtual environment: pip has
/// installed both there, and a script's packages too, whether the environment is activated or not.
std::optional<std::string> python_beside(const std::string& program);

}  // namespace trireme::launch
