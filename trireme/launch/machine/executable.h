// Whether the kernel will agree to execute a file, and the reason in words when it will not.
//
//   check_executable("./train", [](const std::string& name) { return find_in_path(name).has_value(); });
#pragma once

#include <functional>
#include <string>

namespace trireme::launch {

/// Looks at the kind of the file, its permission, its #! line or its ELF header, in that order. `in_path` tells whether
/// a program is found in PATH (for `#!/usr/bin/env name`). Throws Error with exit code 126.
void check_executable(const std::string& path, const std::function<bool(const std::string&)>& in_path);

/// Whether the file is a program that trains with Trireme (core/training_note.h). False where it cannot be read.
bool has_training_note(const std::string& path);

}  // namespace trireme::launch
