// How errors become words and exit codes, for `trireme` and the programs behind it (apps/).
//
//   int main(int argc, char** argv) { return run_main([&] { return run({argv + 1, argv + argc}); }); }
#pragma once

#include <fcntl.h>
#include <fmt/core.h>

#include <cerrno>
#include <cstdio>
#include <exception>
#include <string_view>

#include "trireme/core/error.h"
#include "trireme/core/text.h"

namespace trireme {

/// "trireme: error: …". Its lines stay lines, but a file's name in them may hold what a terminal takes for commands.
inline void print_error(std::string_view message) {
  fmt::print(stderr, "trireme: error: {}\n", printable_lines(message));
}

/// The number of a closed standard stream would go to the next file that is opened, and messages into that file.
inline void fill_standard_streams() {
  for (const int stream : {0, 1, 2})
    if (::fcntl(stream, F_GETFD) < 0) ::open("/dev/null", O_RDWR);
}

template <typename Run>
int run_main(Run run) {
  fill_standard_streams();
  try {
    const int code = run();
    if (std::fflush(stdout) != 0 && code == 0) throw SystemError(errno, "cannot write to standard output");
    return code;
  } catch (const Error& error) {
    print_error(error.what());
    return error.exit_code();
  } catch (const std::exception& error) {
    fmt::print(stderr, "trireme: internal error: {}\nThis is a defect of Trireme; please report it.\n", error.what());
    return 70;
  }
}

}  // namespace trireme
