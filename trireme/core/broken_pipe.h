// Writing to a connection whose other end is gone is an error to handle, not a reason to die: for libraries that write
// without saying so to the kernel (MSG_NOSIGNAL), in programs that have not ignored SIGPIPE.
//
//   const NoBrokenPipe guard;                  // this thread, and threads that it starts meanwhile
//   library.send(…);                           // EPIPE at worst
//
// Nothing of the program's own signal handling changes.
#pragma once

#include <signal.h>

namespace trireme {

class NoBrokenPipe {
 public:
  NoBrokenPipe();
  /// Takes back the signal that a write has raised meanwhile, so that it is not delivered later.
  ~NoBrokenPipe();
  NoBrokenPipe(const NoBrokenPipe&) = delete;
  NoBrokenPipe& operator=(const NoBrokenPipe&) = delete;

 private:
  sigset_t before_;
  bool pending_before_;
};

}  // namespace trireme
